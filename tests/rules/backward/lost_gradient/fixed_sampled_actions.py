import torch
from torch import nn

policy = nn.Linear(4, 2)
loss, state = 0.0, torch.zeros(4)
for t in range(5):
    dist = torch.distributions.Categorical(logits=policy(state))
    action = dist.sample()
    loss = loss - dist.log_prob(action) * float(action)
    state = state + 0.1 * action
loss.backward()
