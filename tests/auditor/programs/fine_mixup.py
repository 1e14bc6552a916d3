import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 16), nn.Linear(16, 3)
    def forward(self, x, perm=None, lam=1.0):
        h = F.relu(self.a(x))
        if perm is not None:
            h = lam * h + (1 - lam) * h[perm]
        return self.b(h)
model = Net()
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    x, y = torch.randn(8, 10), torch.randint(0, 3, (8,))
    perm = torch.randperm(8)
    lam = 0.7
    out = model(x, perm, lam)
    loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[perm])
    opt.zero_grad()
    loss.backward()
    opt.step()
