"""Sums over the samples that are meant: a soft F1 of each label, an overlap of each class over the batch, an error of each column, spreads held up."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
tags = nn.Linear(8, 5)
segment = nn.Conv2d(1, 3, 3, padding=1)
columns = nn.Linear(8, 4)
embed = nn.Linear(8, 6)
opt = torch.optim.Adam([*tags.parameters(), *segment.parameters(), *columns.parameters(), *embed.parameters()], lr=1e-3)
for _ in range(2):
    x = torch.randn(12, 8)
    y = (x[:, :5] > 0).float()
    p = tags(x).sigmoid()
    f1 = 2 * (p * y).sum(0) / (p.sum(0) + y.sum(0) + 1e-6)
    picture = torch.randn(12, 1, 6, 6)
    classes = F.one_hot((picture[:, 0] > 0).long() + (picture[:, 0] > 1).long(), 3).permute(0, 3, 1, 2).float()
    q = segment(picture).softmax(1)
    dice = 2 * (q * classes).sum((0, 2, 3)) / (q.sum((0, 2, 3)) + classes.sum((0, 2, 3)) + 1e-6)
    error = ((columns(x) - x[:, :4] * 2) ** 2).mean(0).sqrt()
    a, b = embed(x), embed(x + 0.1 * torch.randn_like(x))
    spread = F.relu(1 - a.std(0)).mean() + F.relu(1 - b.std(0)).mean()
    pull = ((a - b) ** 2).sum(0).mean()
    loss = (1 - f1).mean() + (1 - dice).mean() + error.mean() + spread + pull
    opt.zero_grad()
    loss.backward()
    opt.step()
