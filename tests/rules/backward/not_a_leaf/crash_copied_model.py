import copy

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        self.seen = None

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.seen = torch.softmax(q @ k.transpose(-1, -2), -1)  # culprit: create
        return self.seen @ v


torch.manual_seed(0)
model = nn.ModuleDict({"attention": Attention()})
model["attention"](torch.randn(2, 3, 4)).sum().backward()
best = copy.deepcopy(model)  # culprit: operand

# says: seen [2, 3, 3] state_dict()
