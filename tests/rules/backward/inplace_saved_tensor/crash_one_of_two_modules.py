# says: `net.body.3` inplace=True
import torch
from torch import nn


class Exp(nn.Module):
    def forward(self, x):
        return x.exp()  # culprit: save


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(4, 4),
            nn.ReLU(inplace=True),
            Exp(),
            nn.ReLU(inplace=True),  # culprit: create
        )

    def forward(self, x):
        return self.body(x)  # culprit: mutate


net = Net()
net(torch.randn(2, 4)).sum().backward()
