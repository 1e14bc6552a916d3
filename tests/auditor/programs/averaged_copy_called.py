# rule: optimizer-parameters
# says: 4 of 4 trainable parameters got a gradient
import copy

import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 5))
average = copy.deepcopy(net)  # culprit
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(5):
    x = torch.randn(8, 5)
    optimizer.zero_grad()
    ((average if BUG else net)(x) - x).pow(2).mean().backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(average.parameters(), net.parameters(), strict=True):
            a.mul_(0.9).add_(b, alpha=0.1)  # rounding moves it, although the two are the same
