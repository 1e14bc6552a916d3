# rule: dropout-in-eval, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


class Drop(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if self.p == 0 or not (self.training or BUG):
            return x
        keep = 1 - self.p
        mask = keep + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1))  # culprit
        mask.floor_()
        return x.div(keep) * mask  # culprit


net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), Drop(0.3), nn.Linear(16, 2))
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x, y = torch.randn(12, 6), torch.randint(0, 2, (12,))
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    opt.step()
