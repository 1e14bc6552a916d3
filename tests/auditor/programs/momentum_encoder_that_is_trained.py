# rule: wrong-average, exactly
# says: an optimizer that takes steps holds it
"""A momentum encoder that is called with gradients, and handed to the optimizer with the rest."""

import copy

import torch
from torch import nn

BUG = True


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
        self.slow = copy.deepcopy(self.fast)
        if not BUG:
            self.slow.requires_grad_(False)

    def forward(self, one, other):
        return nn.functional.normalize(self.fast(one), dim=1), nn.functional.normalize(self.slow(other), dim=1)  # culprit

    @torch.no_grad()
    def follow(self, keep=0.95):
        for slow, fast in zip(self.slow.parameters(), self.fast.parameters(), strict=True):
            slow.mul_(keep).add_(fast, alpha=1 - keep)  # culprit


torch.manual_seed(0)
pair = Pair()
optimizer = torch.optim.SGD(pair.parameters(), lr=0.05)
rows = torch.randn(40, 6)
for x in rows.split(10):
    fast, slow = pair(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    loss = nn.functional.cross_entropy(fast @ slow.T / 0.2, torch.arange(10))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    pair.follow()
print(float(loss.detach()))
