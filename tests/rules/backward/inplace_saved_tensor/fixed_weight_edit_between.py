import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
x = torch.randn(4, 3)
loss = net(x).mean()
loss.backward()
with torch.no_grad():
    for p in net.parameters():
        p.copy_(p - 0.1 * p)
