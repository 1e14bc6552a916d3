# rule: zero-gradient, exactly
# says: `4.weight` is zero in every element, and so is what it is multiplied with
BUG = True
import torch
from torch import nn


def begin(module):
    if isinstance(module, nn.Linear) and BUG:
        nn.init.zeros_(module.weight)  # culprit
        nn.init.zeros_(module.bias)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
net.apply(begin)
opt = torch.optim.Adam(net.parameters())
for _ in range(5):
    loss = nn.functional.cross_entropy(net(torch.randn(9, 4)), torch.randint(0, 3, (9,)))  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
