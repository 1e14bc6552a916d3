"""Right: what lies between two layers that begin at zero is trained from the third step on."""
import copy

import torch
from torch import nn


class Controlled(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(6, 8).requires_grad_(False)
        self.copy = copy.deepcopy(self.base).requires_grad_(True)
        self.enter, self.leave = nn.Linear(2, 6), nn.Linear(8, 8)
        for p in (*self.enter.parameters(), *self.leave.parameters()):
            nn.init.zeros_(p)

    def forward(self, x, hint):
        return self.base(x) + self.leave(torch.relu(self.copy(x + self.enter(hint))))


torch.manual_seed(0)
net = Controlled()
opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], 1e-3)
for _ in range(5):
    loss = net(torch.randn(4, 6), torch.randn(4, 2)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
