"""A latent code is trained through a generator that stays as it is, in eval mode; nobody has frozen it."""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 12)).eval()
wanted = generator(torch.randn(3, 4)).detach()
code = nn.Parameter(torch.zeros(3, 4))
optimizer = torch.optim.Adam([code], 0.1)
for _ in range(10):
    optimizer.zero_grad()
    loss = (generator(code) - wanted).pow(2).mean() + 1e-3 * code.pow(2).mean()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 5))
