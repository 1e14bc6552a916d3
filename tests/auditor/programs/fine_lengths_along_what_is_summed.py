"""Features that are correlated over the samples (Barlow Twins), channels that attend to one another over the positions, and a table weighed by columns."""
import torch
import torch.nn.functional as F
from torch import nn


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 6)

    def forward(self, x):
        q, k, v = (part.mT for part in self.qkv(x).chunk(3, -1))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        return self.out(((q @ k.mT).softmax(-1) @ v).mT.mean(1))


torch.manual_seed(0)
model = Channels()
links = torch.rand(6, 6)
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    x = torch.randn(12, 7, 16)
    one, two = model(x + 0.1 * torch.randn_like(x)), model(x)
    one, two = F.normalize(one - one.mean(0), dim=0), F.normalize(two - two.mean(0), dim=0)
    table = one.T @ two
    spread = (F.normalize(links, dim=0) @ model.out.weight).pow(2).mean()
    loss = ((table - torch.eye(6)) ** 2).sum() + 1e-3 * spread
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
