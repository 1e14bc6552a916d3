import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
points = torch.rand(6, 2, requires_grad=True)
u = net(points)
u_x = torch.autograd.grad(u.sum(), points, create_graph=True)[0][:, 0]
u_t = torch.autograd.grad(u.sum(), points, create_graph=True)[0][:, 1]
(u_t - u_x).square().mean().backward()
