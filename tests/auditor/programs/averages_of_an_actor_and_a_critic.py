# rule: wrong-average
# says: goes the wrong way
"""The soft updates stand behind the steps of two optimizers; that of the critic has its two networks exchanged."""

import copy

import torch
from torch import nn

BUG = True


def follow(target, source, tau=0.05):
    with torch.no_grad():
        for mine, theirs in zip(target.parameters(), source.parameters(), strict=True):
            mine.copy_(tau * theirs + (1 - tau) * mine)  # culprit


torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 1))
slow_actor, slow_critic = copy.deepcopy(actor), copy.deepcopy(critic)
judging, acting = torch.optim.Adam(critic.parameters(), lr=1e-3), torch.optim.Adam(actor.parameters(), lr=1e-3)
for _ in range(5):
    seen = torch.randn(20, 3)
    with torch.no_grad():
        action = actor(seen) + 0.1 * torch.randn(20, 1)
        following = seen + 0.1 * action
        wanted = -following.norm(dim=1, keepdim=True) + 0.9 * slow_critic(torch.cat([following, slow_actor(following)], 1))
    error = nn.functional.mse_loss(critic(torch.cat([seen, action], 1)), wanted)
    judging.zero_grad()
    error.backward()
    judging.step()
    loss = -critic(torch.cat([seen, actor(seen)], 1)).mean()
    acting.zero_grad()
    loss.backward()
    acting.step()
    follow(slow_actor, actor)
    follow(*((critic, slow_critic) if BUG else (slow_critic, critic)))
print(float(loss.detach()))
