import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x, t, e = torch.randn(12, 10), torch.rand(12), torch.randint(0, 2, (12,)).float()
    h = net(x).squeeze(1)
    risk = (t[None, :] >= t[:, None]).float()
    lse = torch.log((risk * h.exp()).sum(1))
    loss = -((h - lse) * e).sum() / e.sum().clamp(min=1)
    opt.zero_grad()
    loss.backward()
    opt.step()
