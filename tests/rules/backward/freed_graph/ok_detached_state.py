import torch
from torch import nn

rnn = nn.GRUCell(3, 4)
h = torch.zeros(2, 4)
for step in range(3):
    h = rnn(torch.randn(2, 3), h.detach())
    h.mean().backward()
