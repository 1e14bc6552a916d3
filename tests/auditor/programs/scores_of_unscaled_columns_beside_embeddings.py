# rule: loss-at-start
# says: beside what is computed, [25, 2] of [25, 6],
BUG = True
import torch
from torch import nn


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.region = nn.Embedding(5, 4)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, numbers, region):
        return self.net(torch.cat([self.region(region), numbers], dim=-1))


torch.manual_seed(0)
income, age = torch.rand(100, 1) * 9e4, torch.rand(100, 1) * 60
numbers = torch.cat([income, age], 1) if BUG else torch.cat([income / 9e4, age / 60], 1)  # culprit
region, y = torch.randint(0, 5, (100,)), (income[:, 0] > 4e4).long()
net = Tabular()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for rows in torch.arange(100).split(25):
    loss = nn.functional.cross_entropy(net(numbers[rows], region[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    opt.step()
