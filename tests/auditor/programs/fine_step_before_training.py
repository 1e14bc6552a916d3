import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 5))
opt = torch.optim.SGD(m.parameters(), 0.1)
opt.zero_grad()
opt.step()
for _ in range(3):
    loss = F.cross_entropy(m(torch.randn(8, 10)), torch.randint(0, 5, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
