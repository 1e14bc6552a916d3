# rule: silent-broadcast
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 8), nn.Linear(12, 8)
    def forward(self, x, y):
        return F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1)
m = Two()
opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    p, q = m(torch.randn(16, 10), torch.randn(16, 12))
    weight = torch.rand(16)
    sim = p @ q.t() if BUG else (p * q).sum(1)
    loss = ((1 - sim) * weight).sum() / weight.sum()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
