import torch
from torch import nn
import torch.nn.functional as F
import copy
torch.manual_seed(0)
def enc():
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
q, k = enc(), enc()
k.load_state_dict(q.state_dict())
for p in k.parameters():
    p.requires_grad = False
queue = F.normalize(torch.randn(8, 32), dim=0)
opt = torch.optim.SGD(q.parameters(), lr=0.03)
for _ in range(4):
    x = torch.randn(8, 10)
    zq = F.normalize(q(x + 0.1 * torch.randn_like(x)), dim=1)
    with torch.no_grad():
        for a, b in zip(q.parameters(), k.parameters()):
            b.mul_(0.99).add_(a, alpha=0.01)
        zk = F.normalize(k(x), dim=1)
    pos = (zq * zk).sum(1, keepdim=True)
    neg = zq @ queue.clone()
    loss = F.cross_entropy(torch.cat([pos, neg], 1) / 0.07, torch.zeros(8, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
    queue = torch.cat([zk.T, queue], 1)[:, :32]
