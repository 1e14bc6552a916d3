# rule: optimizer-parameters, exactly
# says: the weights of a copy
import copy

import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
average = copy.deepcopy(net)  # culprit
optimizer = torch.optim.Adam((average if BUG else net).parameters(), lr=1e-2)  # culprit
for _ in range(4):
    x = torch.randn(16, 6)
    loss = (net(x) - x.pow(2).sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(average.parameters(), net.parameters(), strict=True):
            slow.lerp_(fast, 0.01)
