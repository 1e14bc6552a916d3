"""Adapted to other data by the scales of its normalisations, which keep no running values from then on."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(3):
    loss = F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.requires_grad_(False)
norm = model[1].requires_grad_(True)
norm.track_running_stats, norm.running_mean, norm.running_var = False, None, None
adapting = torch.optim.SGD(norm.parameters(), 1e-2)
for _ in range(3):
    scores = model(torch.randn(8, 8) + 0.5)
    loss = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
    adapting.zero_grad()
    loss.backward()
    adapting.step()
print(round(loss.item(), 4))
