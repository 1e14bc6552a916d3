import torch
from torch import nn


def discounted(rewards, last, gamma=0.9):
    values = [last]
    for reward in reversed(rewards):
        values.insert(0, reward + gamma * values[0])
    return torch.tensor([float(value) for value in values[:-1]])  # culprit: lost-grad


torch.manual_seed(0)
policy, critic = nn.Linear(3, 2), nn.Linear(3, 1)
states = torch.randn(5, 3)
chosen = torch.distributions.Categorical(logits=policy(states))
actions = chosen.sample()
goals = discounted([torch.tensor(1.0)] * 5, critic(states[-1]).squeeze())
advantage = goals - critic(states).squeeze(1).detach()  # culprit: lost-grad
loss = advantage.pow(2).mean() - (advantage * chosen.log_prob(actions).detach()).mean()  # culprit: lost-grad
loss.backward()  # culprit: call
# says: `float(value)` bare
