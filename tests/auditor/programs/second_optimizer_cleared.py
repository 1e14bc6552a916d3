# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model, bound = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)), nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 1))
first, second = torch.optim.Adam(model.parameters(), 1e-3), torch.optim.Adam(bound.parameters(), 1e-3)
for step in range(5):
    x = torch.randn(16, 6)
    p = model(x)
    first.zero_grad()
    (p - x[:, :1] ** 2).pow(2).mean().backward()
    first.step()
    joint = bound(torch.cat([x, p.detach()], 1)).mean()
    apart = bound(torch.cat([x, p.detach()[torch.randperm(16)]], 1)).exp().mean().log()
    if not BUG:
        second.zero_grad()
    (apart - joint).backward()
    if BUG:
        second.zero_grad()  # culprit
    second.step()
