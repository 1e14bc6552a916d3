# rule: contested-parameters
# says: `players.maker.0.weight`
"""The critic's optimizer was given the parameters of the whole, and its loss reaches the generator."""

import torch
from torch import nn

BUG = True


class Players(nn.Module):
    def __init__(self):
        super().__init__()
        self.maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
        self.critic = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))


torch.manual_seed(0)
players = Players()
making = torch.optim.Adam(players.maker.parameters(), lr=1e-3)
judging = torch.optim.Adam(players.parameters() if BUG else players.critic.parameters(), lr=1e-3)  # culprit
for _ in range(6):
    real = torch.randn(24, 3) * 0.3 + 1
    made = players.maker(torch.randn(24, 4))
    loss = nn.functional.softplus(-players.critic(real)).mean() + nn.functional.softplus(players.critic(made)).mean()
    judging.zero_grad()
    loss.backward()
    judging.step()
    made = players.maker(torch.randn(24, 4))
    likeness = nn.functional.softplus(-players.critic(made)).mean()
    making.zero_grad()
    likeness.backward()
    making.step()
print(float(likeness.detach()))
