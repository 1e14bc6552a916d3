import torch
from torch import nn


class Hinge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, distance, margin):
        ctx.save_for_backward(distance)
        ctx.margin = margin
        return (margin - distance).clamp_min(0)

    @staticmethod
    def backward(ctx, grad):
        (distance,) = ctx.saved_tensors
        return -grad * (distance < ctx.margin), None


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for margin in (0.01, 1.0, 1.0, 1.0):
    distance = (net(torch.randn(8, 6)) - net(torch.randn(8, 6))).pow(2).sum(1).add(1e-8).sqrt()
    loss = Hinge.apply(distance, margin).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
