from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributions import Categorical


@dataclass
class Rollout:
    states: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    log_probs: list = field(default_factory=list)


def update(policy, optimizer, rollout):
    old = torch.stack(rollout.log_probs).detach()
    states, actions = torch.stack(rollout.states), torch.stack(rollout.actions)
    for _ in range(3):
        new = Categorical(logits=policy(states)).log_prob(actions)
        ratio = (new - old).exp()
        loss = -ratio.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
rollout = Rollout()
for _ in range(4):
    state = torch.randn(3)
    choice = Categorical(logits=policy(state))
    action = choice.sample()
    rollout.states.append(state)
    rollout.actions.append(action)
    rollout.log_probs.append(choice.log_prob(action))
update(policy, optimizer, rollout)
