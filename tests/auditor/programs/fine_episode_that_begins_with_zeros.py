"""A policy is asked several times before each step; the first state of an episode is zero in every element."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(5):
    state, score = torch.zeros(16, 6), torch.zeros(16)
    for _ in range(3):
        choice = Categorical(logits=net(state))
        action = choice.sample()
        score = score + choice.log_prob(action)
        state = state + nn.functional.one_hot(action, 6) + 0.1 * torch.randn(16, 6)
    gain = state[:, 0] - state[:, 1]
    loss = -(score * (gain - gain.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
