# rule: wrong-average, exactly
# says: goes the wrong way
"""The soft update of a target network with its two networks exchanged."""

import copy

import torch
from torch import nn

BUG = True


@torch.no_grad()
def soft_update(source, target, tau=0.02):
    for one, other in zip(source.parameters(), target.parameters(), strict=True):
        other.lerp_(one, tau)  # culprit


torch.manual_seed(0)
online = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for _ in range(5):
    seen = torch.randn(16, 3)
    following, rewards = seen + 0.1, seen.sum(1)
    wanted = rewards + 0.9 * target(following).amax(1)
    loss = nn.functional.mse_loss(online(seen)[:, 0], wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    soft_update(*((target, online) if BUG else (online, target)))
print(float(loss.detach()))
