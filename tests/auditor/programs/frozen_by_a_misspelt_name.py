# rule: nothing-frozen, exactly
# says: `require_grad = False` on a parameter freezes nothing
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def freeze(module):
    for p in module.parameters():
        if BUG:
            p.require_grad = False  # culprit
        else:
            p.requires_grad = False


backbone = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
freeze(backbone)
model = nn.Sequential(backbone, nn.Linear(32, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(16, 12), torch.randint(0, 3, (16,))
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
