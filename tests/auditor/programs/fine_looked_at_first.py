import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
net.eval()
print(net(torch.ones(1, 6)).shape)  # what comes out? Constant, and in eval mode: no training
net.train()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    net.eval()
    with torch.no_grad():
        right = (net(x).argmax(1) == y).sum().item()
    opt.step()
    net.train()
print(loss.item(), right)
