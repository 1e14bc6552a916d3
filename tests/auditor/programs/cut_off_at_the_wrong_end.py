# rule: causal-leak
BUG = True
import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(16, 32, 2, padding=1)

    def forward(self, x):
        wide = self.convolution(x)
        y = wide[:, :, 1:] if BUG else wide[:, :, :-1]  # culprit
        return x + y[:, :16].tanh() * y[:, 16:].sigmoid()


class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layers, self.out = nn.Embedding(32, 16), nn.Sequential(Gated(), Gated()), nn.Conv1d(16, 32, 1)

    def forward(self, levels):
        return self.out(self.layers(self.table(levels).mT))


torch.manual_seed(0)
net = Wave()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    levels = torch.randint(0, 32, (4, 33))  # as many positions as levels, and as channels
    loss = nn.functional.cross_entropy(net(levels[:, :-1]), levels[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
