import torch
from torch import nn
import torch.nn.functional as F
import copy
torch.manual_seed(0)
class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
        self.target = copy.deepcopy(self.online)
        self.pred = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    @torch.no_grad()
    def update(self, m=0.99):
        for o, t in zip(self.online.parameters(), self.target.parameters()):
            t.data.mul_(m).add_(o.data, alpha=1 - m)
    def forward(self, a, b):
        p = self.pred(self.online(a))
        with torch.no_grad():
            t = self.target(b)
        return (2 - 2 * F.cosine_similarity(p, t, dim=-1)).mean()
model = BYOL()
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    x = torch.randn(8, 20)
    loss = model(x, x + 0.1 * torch.randn(8, 20))
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.update()
