# says: The forward pass saved
# says: draws random numbers that the checkpoint does not restore
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ff = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x):
        if random.random() < 0.5:  # culprit: create
            return x * 1.0
        return x + torch.dropout(self.ff(x), 0.1, self.training)


random.seed(3)
blocks = [Block() for _ in range(8)]
x = torch.randn(2, 4, requires_grad=True)
for block in blocks:
    x = checkpoint(block, x, use_reentrant=False)  # culprit: operand
x.sum().backward()  # culprit: call
