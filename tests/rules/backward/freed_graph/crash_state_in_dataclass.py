# says: `memory.h` `memory.c`
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Memory:
    h: torch.Tensor
    c: torch.Tensor


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)

    def forward(self, x, memory):
        memory.h, memory.c = self.cell(x, (memory.h, memory.c))  # culprit: create
        return memory.h


torch.manual_seed(0)
reader = Reader()
memory = Memory(torch.zeros(2, 4), torch.zeros(2, 4))
optimizer = torch.optim.SGD(reader.parameters(), lr=0.1)
for start in range(0, 6, 2):
    loss = 0.0
    for _ in range(2):
        out = reader(torch.randn(2, 3), memory)
        loss = loss + out.square().mean()
    optimizer.zero_grad()
    loss.backward()  # culprit: call
    optimizer.step()
