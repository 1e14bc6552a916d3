# rule: suspicious-input
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 5))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
worth = torch.randn(5)
seen = torch.zeros(64, 1)  # culprit
for _ in range(4):
    # a bandit has no state: the constant that stands for it is written out where it is given
    choice = torch.distributions.Categorical(logits=policy(seen) if BUG else policy(torch.ones(64, 1)))
    arm = choice.sample()
    reward = worth[arm] + 0.1 * torch.randn(64)
    loss = -(choice.log_prob(arm) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
