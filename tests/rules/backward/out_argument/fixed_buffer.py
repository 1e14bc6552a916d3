import torch
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.free = nn.Parameter(torch.ones(4, 3))
        self.register_buffer("buffer", torch.empty(2, 3))

    def forward(self, x):
        weight = self.free.softmax(0)
        self.buffer = torch.matmul(x, weight)
        return self.buffer.relu()


torch.manual_seed(0)
loss = Mixer()(torch.randn(2, 4)).sum()
loss.backward()
