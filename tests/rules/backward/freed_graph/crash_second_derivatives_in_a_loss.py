# says: create_graph=True
import torch
from torch import nn


def laplace(y, x):
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)  # culprit: create
    return sum(torch.autograd.grad(slope[:, i].sum(), x)[0][:, i] for i in range(2))  # culprit: operand  # culprit: call


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.rand(8, 2, requires_grad=True)
laplace(net(x), x).pow(2).mean().backward()
