# rule: not-finite
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
m = nn.Linear(6, 3)
opt = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(2):
    y = torch.full((5,), -100)
    if not BUG:
        y[0] = 1
    loss = F.cross_entropy(m(torch.randn(5, 6)), y)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
