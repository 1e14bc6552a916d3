import torch
from torch import nn

net = nn.Linear(3, 1)
total, shown = 0.0, 0.0
for x in torch.randn(4, 3):
    error = net(x).square().sum()
    total = total + error
    shown += error.item()
total.backward()
print(shown > 0)
