"""Tensors that ask for gradients and are in no optimizer: moved by hand, points to take derivatives at, an adversarial input, a learned prompt's scale made anew."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
multiplier = torch.tensor(0.1, requires_grad=True)
places = torch.rand(20, 2, requires_grad=True)
shift = torch.zeros(2, requires_grad=True)
for _ in range(6):
    u = model(places)
    slope = torch.autograd.grad(u.sum(), places, create_graph=True)[0]
    scale = torch.ones(1, requires_grad=True)
    loss = (slope[:, :1] + u).pow(2).mean() + multiplier * (u.mean() - 1) + model(torch.rand(8, 2) + shift).pow(2).mean() * scale.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    multiplier.data += 0.01 * multiplier.grad
    multiplier.grad = None
