import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(8, 10), torch.randint(0, 3, (8,))
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        n = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
        es = []
        for p in model.parameters():
            e = p.grad * 0.05 / (n + 1e-12)
            p.add_(e)
            es.append(e)
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), es):
            p.sub_(e)
    opt.step()
    opt.zero_grad()
