import torch
from torch import nn


def put_back(model, flat):
    at = 0
    for p in model.parameters():
        p.grad = flat[at : at + p.numel()].view_as(p)
        at += p.numel()


torch.manual_seed(0)
model = nn.Linear(3, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(5, 3)).pow(2).mean().backward()
flat = torch.cat([p.grad.flatten() for p in model.parameters()])
put_back(model, flat / flat.norm())
opt.step()
