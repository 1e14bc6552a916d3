import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
norms = {}


def watch(name):
    def hook(grad):
        norms[name] = grad.norm()
        return grad
    return hook


for n, p in net.named_parameters():
    p.register_hook(watch(n))
net(torch.randn(5, 3)).sum().backward()
