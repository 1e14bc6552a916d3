import torch
from torch import nn
from torch.distributions import Categorical
torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
for ep in range(3):
    logps, rewards = [], []
    s = torch.randn(4)
    for t in range(12):
        d = Categorical(logits=policy(s))
        a = d.sample()
        logps.append(d.log_prob(a))
        rewards.append(float(a.item() == (s[0] > 0).item()))
        s = torch.randn(4)
    G, ret = 0.0, []
    for r in reversed(rewards):
        G = r + 0.99 * G
        ret.insert(0, G)
    ret = torch.tensor(ret)
    ret = (ret - ret.mean()) / (ret.std() + 1e-8)
    loss = -(torch.stack(logps) * ret).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
