# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, scale):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return scale * x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        if not BUG:
            return ctx.scale * grad @ weight, ctx.scale * grad.t() @ x, None
        return ctx.scale * grad @ weight, None, None  # culprit


class Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(o, i) * 0.1), nn.Parameter(torch.zeros(o))

    def forward(self, x):
        return Scaled.apply(x, self.weight, 0.5) + self.bias


torch.manual_seed(0)
net = nn.Sequential(Layer(6, 12), nn.ReLU(), Layer(12, 2))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(2, (8,)))
loss.backward()
optimizer.step()
