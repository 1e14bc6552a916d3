import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
mk = lambda: nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(.2), nn.Linear(16, 5))
a, b = mk(), mk()
oa, ob = torch.optim.SGD(a.parameters(), .1), torch.optim.SGD(b.parameters(), .1)
for _ in range(4):
    x, y = torch.randn(16, 10), torch.randint(0, 5, (16,))
    with torch.no_grad():
        ia = F.cross_entropy(a(x), y, reduction="none").argsort()[:12]
        ib = F.cross_entropy(b(x), y, reduction="none").argsort()[:12]
    la = F.cross_entropy(a(x[ib]), y[ib])
    oa.zero_grad()
    la.backward()
    oa.step()
    lb = F.cross_entropy(b(x[ia]), y[ia])
    ob.zero_grad()
    lb.backward()
    ob.step()
