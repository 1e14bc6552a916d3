import math

import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Adversary(nn.Module):
    """Its encoder is trained against the critic only, with a strength that begins at nothing."""

    def __init__(self):
        super().__init__()
        self.encoder, self.critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 2)

    def forward(self, x, strength):
        return self.critic(Reverse.apply(self.encoder(x), strength))


torch.manual_seed(0)
net = Adversary()
optimizer = torch.optim.SGD(net.parameters(), 0.05)
for step in range(5):
    strength = 2 / (1 + math.exp(-step)) - 1
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6), strength), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
