# rule: silent-broadcast
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net, criterion = nn.Sequential(nn.Linear(7, 20), nn.Tanh(), nn.Linear(20, 1)), nn.PoissonNLLLoss()
opt = torch.optim.Adam(net.parameters(), 3e-3)
for _ in range(3):
    x = torch.randn(24, 7)
    counts = torch.poisson(x[:, 0].exp())
    rate = net(x) if BUG else net(x).squeeze(1)
    loss = criterion(rate, counts)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
