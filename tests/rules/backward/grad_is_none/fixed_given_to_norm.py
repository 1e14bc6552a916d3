import torch
from torch import nn


def clip(parameters, limit):
    for p in parameters:
        norm = torch.norm(p.grad)
        if norm > limit:
            p.grad.mul_(limit / norm)


torch.manual_seed(0)
net = nn.Linear(4, 2)
loss = net(torch.randn(3, 4)).pow(2).mean()
loss.backward()
clip(net.parameters(), 1.0)
