import torch
from torch import nn


def scale(module, grad_in, grad_out):
    if grad_in[0] is None:
        return None
    return (grad_in[0] * 0.5,)


net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
net[1].register_full_backward_hook(scale)
net(torch.randn(5, 3)).sum().backward()
