import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
states = torch.randn(10, 4)
dist = torch.distributions.Categorical(logits=policy(states))
actions = dist.sample()
old = dist.log_prob(actions)
adv = torch.randn(10)
for epoch in range(3):
    new = torch.distributions.Categorical(logits=policy(states)).log_prob(actions)
    ratio = (new - old.detach()).exp()
    loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
