# rule: undetached-target, exactly
# says: is a given number and a share of the same network's value for other inputs
"""Temporal differences: the value of the next state is computed with gradients, and the step trains it towards this one's."""

import torch
from torch import nn

BUG = True


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 16)
        self.outer = nn.Linear(16, 1)

    def forward(self, states):
        return self.outer(torch.tanh(self.inner(states))).squeeze(-1)


def bootstrapped(value, rewards, following, over, discount=0.9):
    following = value(following)
    if not BUG:
        following = following.detach()
    return rewards + discount * following * (1 - over)  # culprit


torch.manual_seed(0)
value = Value()
optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
states = torch.randn(24, 3)
for step in range(5):
    following = 0.9 * states + 0.1 * torch.randn(24, 3)
    rewards, over = -following.norm(dim=1), (torch.rand(24) < 0.1).float()
    loss = (value(states) - bootstrapped(value, rewards, following, over)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    states = following
print(float(loss.detach()))
