# rule: silent-broadcast, exactly
# says: `mean` and `std` over axis 1 of [8, 8] give [8]
# says: `mean(…, dim=-1, keepdim=True)` and `std(…, dim=-1, keepdim=True)`
import torch
from torch import nn


BUG = True


class Norm(nn.Module):
    def forward(self, x):
        mean = x.mean(-1, keepdim=not BUG)  # culprit
        std = x.std(-1, keepdim=not BUG)  # culprit
        return (x - mean) / (std + 1e-6)  # culprit


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, x):
        weights = torch.exp(self.q(x) @ self.k(x).mT / 3)
        return (weights / weights.sum(-1, keepdim=not BUG) @ self.v(x)).mean(1)  # culprit


torch.manual_seed(0)
net = nn.Sequential(Attention(), Norm(), nn.Linear(8, 1), nn.Flatten(0))
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x = torch.randn(8, 8, 4)
    loss = (net(x) - x.sum((1, 2))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
