import torch
from torch import nn

policy = nn.Linear(4, 2)
log_probs, rewards = [], []
state = torch.zeros(4)
for t in range(5):
    dist = torch.distributions.Categorical(logits=policy(state))
    action = dist.sample()
    log_probs.append(dist.log_prob(action))
    rewards.append(float(action))
    state = state + 0.1 * action
returns = torch.tensor(rewards)
loss = -(torch.tensor([v.item() for v in log_probs]) * returns).sum()  # culprit: lost-grad
loss.backward()  # culprit: call
