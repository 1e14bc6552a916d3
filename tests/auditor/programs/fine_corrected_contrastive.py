import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
a, b = nn.Linear(10, 8), nn.Linear(12, 8)
opt = torch.optim.Adam([*a.parameters(), *b.parameters()])
for _ in range(3):
    x, y, w = torch.randn(12, 10), torch.randn(12, 12), torch.rand(12)
    za, zb = F.normalize(a(x), dim=1), F.normalize(b(y), dim=1)
    logits = za @ zb.T / 0.07
    popularity = torch.rand(12)
    logits = logits - popularity.log()      # log-q correction, one per column
    loss = (F.cross_entropy(logits, torch.arange(12), reduction="none") * w).sum() / w.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
