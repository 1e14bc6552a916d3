"""Writes into trained weights that are meant: weight decay by hand, a pull towards the first weights, an average over two models that are both trained."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
one, two = nn.Linear(4, 8), nn.Linear(4, 8)
first = copy.deepcopy(one).requires_grad_(False)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (one, two)]
for _ in range(4):
    rows = torch.randn(12, 4)
    for model, optimizer in zip((one, two), optimizers, strict=True):
        optimizer.zero_grad()
        loss = model(rows).square().mean()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for mine, theirs, began in zip(one.parameters(), two.parameters(), first.parameters(), strict=True):
            mine.data.mul_(0.99).add_(mine.data, alpha=-0.001)
            mine.lerp_(began, 0.05)
            mean = 0.5 * mine + 0.5 * theirs
            mine.copy_(mean)
            theirs.copy_(mean)
print(float(loss.detach()))
