# rule: resting-group, exactly
# says: all 6 steps
"""The rate of one group is a setting that was left at 0."""

import torch
from torch import nn

BUG = True


class Settings:
    slow = 1e-4
    fast = 0.0 if BUG else 1e-2


torch.manual_seed(0)
encoder, decoder = nn.Linear(8, 4), nn.Linear(4, 8)
model = nn.Sequential(encoder, nn.Tanh(), decoder)
optimizer = torch.optim.Adam([
    {"params": encoder.parameters(), "lr": Settings.slow},
    {"params": decoder.parameters(), "lr": Settings.fast},  # culprit
])
data = torch.randn(30, 8)
for _ in range(2):
    for rows in data.split(10):
        optimizer.zero_grad()
        loss = (model(rows) - rows).square().mean()
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
