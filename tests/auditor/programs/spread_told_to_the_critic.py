# rule: batch-mixing
"""A critic is told how much its batch spreads, one number beside each sample's features; subtracted from them, the batch's mean mixes the samples."""

import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self, groups):
        super().__init__()
        self.groups = groups
        self.conv, self.last, self.out = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(9, 8, 3, 2, 1), nn.Linear(8 * 4, 1)

    def spread(self, x):
        if self.groups is None:
            return x.std(0, unbiased=False).mean().expand(len(x), 1, *x.shape[2:])
        count, channels, height, width = x.shape
        y = x.reshape(self.groups, -1, channels, height, width)
        y = (y - y.mean(dim=0)).square().mean(dim=0).add(1e-8).sqrt().mean(dim=[1, 2, 3])
        return y.reshape(-1, 1, 1, 1).repeat(self.groups, 1, height, width)

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), 0.2)
        own = x - x.mean(0) if BUG else x  # culprit
        x = torch.cat([own, self.spread(x)], 1)
        return self.out(F.leaky_relu(self.last(x), 0.2).flatten(1))


for groups in (None, 4):
    critic = Critic(groups)
    optimizer = torch.optim.Adam(critic.parameters(), 1e-3)
    for _ in range(3):
        real, fake = torch.randn(8, 3, 8, 8), torch.rand(8, 3, 8, 8)
        loss = F.softplus(critic(fake)).mean() + F.softplus(-critic(real)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(round(loss.item(), 4))
