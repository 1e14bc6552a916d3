# rule: no-update, exactly
# says: the learning rate is set here
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 2)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for group in opt.param_groups:
    group["lr"] *= 1 // 10 if BUG else 1 / 10  # culprit
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(5, 6)), torch.randint(0, 2, (5,)))
    opt.zero_grad()
    loss.backward()
    opt.step()  # culprit
