# rule: unused-parameters
BUG = True
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mix, self.feed = nn.Linear(d, d), nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d))

    def forward(self, x):
        y = x + torch.relu(self.mix(x))  # culprit
        y = (x if BUG else y) + self.feed(x if BUG else y)
        return y


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), Block(8), nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
nn.functional.cross_entropy(net(torch.randn(16, 6)), torch.randint(2, (16,))).backward()
optimizer.step()
