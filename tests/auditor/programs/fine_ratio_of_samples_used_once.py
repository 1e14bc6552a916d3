"""A ratio that is 1 by design: each sample is used for one step, whose gradients are gathered in parts; only the gradient of the ratio matters."""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
for _ in range(4):
    with torch.no_grad():
        seen = torch.randn(24, 4)
        actions = Categorical(logits=policy(seen)).sample()
        rewards = (actions == seen[:, :3].argmax(1)).float()
        gains = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    optimizer.zero_grad()
    for part in torch.arange(24).split(8):
        scores = Categorical(logits=policy(seen[part])).log_prob(actions[part])
        ratio = torch.exp(scores - scores.detach())
        loss = -torch.min(ratio * gains[part], ratio.clamp(0.8, 1.2) * gains[part]).mean()
        (loss / 3).backward()
    optimizer.step()
print(float(loss.detach()))
