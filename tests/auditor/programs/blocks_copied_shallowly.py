# rule: shared-layers
# says: `copy.copy`
BUG = True
import copy

import torch
from torch import nn

torch.manual_seed(0)


class Residual(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
        self.blocks = nn.ModuleList([(copy.copy if BUG else copy.deepcopy)(block) for _ in range(count)])  # culprit
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


net = Residual(10, 3)
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x, y = torch.randn(8, 10), torch.randint(0, 2, (8,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
