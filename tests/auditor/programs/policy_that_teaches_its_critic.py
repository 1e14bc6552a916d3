# rule: undetached-target, exactly
# says: `value.bias`
"""An actor and a critic of one body: the advantage keeps the history of the critic's estimate where it weighs the policy's scores."""

import torch
from torch import nn
from torch.distributions import Categorical

BUG = True


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 24), nn.Tanh())
        self.policy = nn.Linear(24, 4)
        self.value = nn.Linear(24, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return Categorical(logits=self.policy(hidden)), self.value(hidden)[:, 0]


def episode(agent, length=12):
    seen, scores, values, rewards = torch.randn(1, 5), [], [], []
    for _ in range(length):
        choice, value = agent(seen)
        action = choice.sample()
        scores.append(choice.log_prob(action))
        values.append(value)
        rewards.append(float(action.item() == int(seen.argmax()) % 4))
        seen = torch.randn(1, 5)
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.95 * total
        returns.insert(0, total)
    return torch.cat(scores), torch.cat(values), torch.tensor(returns)


torch.manual_seed(0)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
for _ in range(5):
    scores, values, returns = episode(agent)
    advantages = returns - values
    if not BUG:
        advantages = advantages.detach()
    policy_loss = -(scores * advantages).mean()  # culprit
    loss = policy_loss + nn.functional.mse_loss(values, returns)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
