# rule: result-dropped, exactly
# says: 4 times in the step
"""The gradients of a loss that was multiplied by hand are divided again on a line that keeps nothing."""

import torch
from torch import nn

BUG = True
SCALE = 512.0
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
rows = torch.randn(40, 6)
for x in rows.split(10):
    optimizer.zero_grad()
    loss = (net(x) - x.mean(1, keepdim=True)).pow(2).mean()
    (loss * SCALE).backward()
    for p in net.parameters():
        if BUG:
            p.grad / SCALE  # culprit
        else:
            p.grad /= SCALE
    optimizer.step()
print(float(loss.detach()))
