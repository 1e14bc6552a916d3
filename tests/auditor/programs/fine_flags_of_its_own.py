# A module that keeps a flag under the name of a tensor's switch, and reads it; parameters that were frozen for a while.
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        self.requires_grad = requires_grad
        self.net = nn.Linear(6, 6)

    def forward(self, x):
        return self.net(x if self.requires_grad else x.detach()).relu()


net = nn.Sequential(Block(), nn.Linear(6, 3))
for p in net[0].parameters():
    p.requires_grad = False
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for step in range(6):
    if step == 3:
        net[0].net.requires_grad_(True)
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
