# rule: loss-at-start
# says: the data is not scaled
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
income, age = torch.rand(32, 1) * 9e4, torch.rand(32, 1) * 60
x = torch.cat([income, age], 1) if BUG else torch.cat([income / 9e4, age / 60], 1)  # culprit
y = (income[:, 0] > 4e4).long()
net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
