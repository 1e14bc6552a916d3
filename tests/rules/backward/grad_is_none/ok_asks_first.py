import torch
from torch import nn

torch.manual_seed(0)
net, spare = nn.Linear(3, 1), nn.Linear(3, 1)
x = torch.randn(4, 3, requires_grad=True)
hidden = x * 2
hidden.retain_grad()
net(hidden).pow(2).mean().backward()
norms = [p.grad.norm() for p in (*net.parameters(), *spare.parameters()) if p.grad is not None]
print(len(norms), hidden.grad.shape, x.grad.shape)
best = None
try:
    best + 1
except TypeError:
    pass
