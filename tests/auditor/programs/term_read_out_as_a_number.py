# rule: gradient-cut, exactly
# says: a plain number, into the loss; it comes from `p.pow(2).sum().item()` (4 calls, together)
BUG = True
import torch
from torch import nn


def penalty(module, strength=1e-3):
    total = 0.0
    for p in module.parameters():
        if BUG:
            total += p.pow(2).sum().item()  # culprit
        else:
            total = total + p.pow(2).sum()
    return strength * total


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x, y = torch.randn(7, 6), torch.randint(0, 3, (7,))
    loss = nn.functional.cross_entropy(net(x), y) + penalty(net)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
