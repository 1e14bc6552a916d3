# rule: gradient-cut, exactly
# says: nothing that the model has computed is in it
BUG = True
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.Adam(policy.parameters(), 1e-2)
for _ in range(3):
    s, rewards, chosen = torch.randn(4), [], []
    for _ in range(6):
        d = Categorical(logits=policy(s))
        a = d.sample()
        chosen.append(d.log_prob(a))
        s = torch.tanh(s + 0.1 * torch.randn(4))
        rewards.append(float(s[a.item()]))
    if BUG:
        loss = -torch.tensor(rewards, requires_grad=True).sum()  # culprit
    else:
        loss = -(torch.stack(chosen) * torch.tensor(rewards)).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
