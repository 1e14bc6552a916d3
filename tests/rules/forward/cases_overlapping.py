"""Writes in place into memory that several elements share, or that the same operation reads."""

from forward_harness import Case

CASES = [
    Case("noise-onto-a-stretched-row", """\
import torch
from torch import nn
class Noisy(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.base = torch.zeros(1, d)
    def forward(self, x):
        eps = self.base.expand(x.size(0), -1)  #! create
        eps += 0.1 * torch.ones_like(x)  #! mutate
        return x + eps
Noisy(3)(torch.ones(4, 3))
""", "overlapping-write", ("`eps`, whose elements share memory", "without a copy")),
    Case("a-running-sum-of-slices", """\
import torch
x = torch.arange(6.0)
x[1:] += x[:-1]  #! mutate
""", "overlapping-write", ("memory that it reads at the same time",)),
]
