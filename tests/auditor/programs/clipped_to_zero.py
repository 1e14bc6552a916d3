# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(3):
    optimizer.zero_grad()
    for part in range(2):
        (nn.functional.cross_entropy(net(torch.randn(4, 6)), torch.randint(2, (4,))) / 2).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.0 if BUG else 1.0)  # culprit
    optimizer.step()
