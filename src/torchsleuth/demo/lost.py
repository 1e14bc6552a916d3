"""A loss put together with torch.tensor, which copies the values and leaves the history behind."""

import torch
from torch import nn

model = nn.Linear(8, 3)
heads = [torch.tensor([0, 1, 2, 1]), torch.tensor([2, 2, 0, 1])]

losses = []
for target in heads:
    logits = model(torch.randn(4, 8))
    losses.append(nn.functional.cross_entropy(logits, target))
total = torch.tensor(losses).mean()
total.backward()
