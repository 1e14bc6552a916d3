import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.value, self.gate = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        opened = torch.tanh(self.gate(x)) + 1
        y = self.value(x) * opened  # culprit: save
        opened *= 0.5  # culprit: mutate
        return y, opened


torch.manual_seed(0)
block = Gated(4)
h, how_open = block(torch.randn(3, 4))
(h.sum() + how_open.mean()).backward()
# says: `opened` was overwritten after
# says: wrote into `opened`
