from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Carry:
    memory: torch.Tensor
    steps: int = 0


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)

    def forward(self, x, carry):
        mixed = torch.tanh(self.f(x) + carry.memory)
        return mixed, Carry(mixed, carry.steps + 1)


def train(net, batches):
    carry = Carry(torch.zeros(3, 4))
    for x in batches:
        y, carry = net(x, carry)
        y.pow(2).sum().backward()
        carry.memory = carry.memory.detach()


torch.manual_seed(0)
train(Mixer(), torch.randn(3, 3, 4))
