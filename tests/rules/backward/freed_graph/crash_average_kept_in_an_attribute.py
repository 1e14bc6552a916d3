# says: `self.last`
import torch
from torch import nn


class Smooth(nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.linear = nn.Linear(3, 3)
        self.last = None

    def forward(self, x):
        y = self.linear(x).tanh()  # culprit: create
        if self.last is not None:
            y = self.rate * self.last + (1 - self.rate) * y  # culprit: operand
        self.last = y  # culprit: create
        return y


torch.manual_seed(0)
net = Smooth(0.7)
for _ in range(3):
    net(torch.randn(2, 3)).sum().backward()  # culprit: call
