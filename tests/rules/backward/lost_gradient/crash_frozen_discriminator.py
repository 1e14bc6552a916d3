# says: `critic.weight` frozen
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def frozen(module):
    for p in module.parameters():
        p.requires_grad_(False)  # culprit: lost-grad
    yield  # and nobody lets them go again


maker, critic = nn.Linear(3, 4), nn.Linear(4, 1)
critic.bias.requires_grad = False  # culprit: lost-grad
of_maker, of_critic = torch.optim.SGD(maker.parameters(), lr=0.1), torch.optim.SGD(critic.parameters(), lr=0.1)
with frozen(critic):  # culprit: call
    made = -critic(maker(torch.randn(2, 3))).mean()
    of_maker.zero_grad()
    made.backward()
    of_maker.step()
fake = maker(torch.randn(2, 3)).detach()  # as it should be
loss = critic(torch.randn(2, 4)).mean() + critic(fake).mean()  # culprit: create
of_critic.zero_grad()
loss.backward()  # culprit: call
