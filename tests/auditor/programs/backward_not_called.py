# rule: no-update
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
m = nn.Linear(10, 5)
opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    opt.zero_grad()
    loss = F.cross_entropy(m(torch.randn(8, 10)), torch.randint(0, 5, (8,)))
    if not BUG:
        loss.backward()
    else:
        loss.backward
    opt.step()  # culprit
