import torch
from torch import nn


class Exp(nn.Module):
    def forward(self, x):
        return x.exp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 4),
            nn.ReLU(inplace=True),
            Exp(),
            nn.ReLU(inplace=False),
        )

    def forward(self, x):
        return self.body(x)


net = Net()
net(torch.randn(2, 4)).sum().backward()
