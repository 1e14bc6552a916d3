import torch
from torch import nn
torch.manual_seed(0)
enc = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
opt = torch.optim.Adam(enc.parameters())
def sqdist(x, y):
    xn = (x ** 2).sum(1).view(-1, 1)
    yn = (y ** 2).sum(1)
    return xn + yn - 2 * x @ y.t()
def mmd(x, y):
    k = lambda a, b: torch.exp(-sqdist(a, b) / 2).mean()
    return k(x, x) + k(y, y) - 2 * k(x, y)
for _ in range(2):
    loss = mmd(enc(torch.randn(12, 10)), torch.randn(12, 4))
    opt.zero_grad()
    loss.backward()
    opt.step()
