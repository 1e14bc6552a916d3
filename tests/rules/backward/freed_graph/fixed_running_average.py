import torch
from torch import nn


class Average:
    def __init__(self, keep=0.9):
        self.keep, self.value = keep, None

    def update(self, new):
        if self.value is None:
            self.value = new
        else:
            self.value = self.keep * self.value + (1 - self.keep) * new
        return self.value


net = nn.Linear(4, 1)
average = Average()
for _ in range(3):
    raw = net(torch.randn(8, 4)).pow(2).mean()
    loss = raw + (raw - average.update(raw)).abs()
    loss.backward()
    average.value = average.value.detach()
