# says: `carry.memory`
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
        mixed = torch.tanh(self.f(x) + carry.memory)  # culprit: create  # culprit: operand
        return mixed, Carry(mixed, carry.steps + 1)


def train(net, batches):
    carry = Carry(torch.zeros(3, 4))
    for x in batches:
        y, carry = net(x, carry)  # culprit: create
        y.pow(2).sum().backward()  # culprit: call


torch.manual_seed(0)
train(Mixer(), torch.randn(3, 3, 4))
