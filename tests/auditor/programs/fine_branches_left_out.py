"""Stochastic depth with a batch of one: a branch is multiplied by a zero that was drawn, or not entered, in this step."""

import torch
import torch.nn.functional as F
from torch import nn

D = 8


def drop_path(x, rate, training):
    if not training:
        return x
    kept = (1 - rate + torch.rand(x.shape[0], 1)).floor_()
    return x.div(1 - rate) * kept


class Block(nn.Module):
    def __init__(self, skip):
        super().__init__()
        self.skip, self.branch = skip, nn.Sequential(nn.LayerNorm(D), nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

    def forward(self, x):
        if self.skip and self.training and torch.rand(()).item() < 0.7:
            return x
        branch = self.branch(x)
        return x + (branch if self.skip else drop_path(branch, 0.7, self.training))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, D), *[Block(skip=i % 2 == 1) for i in range(8)], nn.Linear(D, 3))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    loss = F.cross_entropy(model(torch.randn(1, 5)), torch.randint(0, 3, (1,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
