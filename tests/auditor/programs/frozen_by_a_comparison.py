# rule: nothing-frozen, exactly
BUG = True
import torch
from torch import nn


def freeze(module):
    for p in module.parameters():
        if BUG:
            p.requires_grad == False  # culprit
        else:
            p.requires_grad = False


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
freeze(net[0])
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.1)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 6)), torch.randint(0, 2, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
