# rule: gradients-kept
# says: `model.zero_grad()`
"""A module that is trained without an optimizer, by a function that changes the parameters and leaves the gradients."""

import torch
from torch import nn

BUG = True


@torch.no_grad()
def descend(net, rate):
    for parameter in net.parameters():
        parameter.sub_(parameter.grad, alpha=rate)
    if not BUG:
        net.zero_grad()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
rows = torch.randn(40, 3)
for _ in range(2):
    for x in rows.split(10):
        loss = nn.functional.mse_loss(net(x), x.sum(1, keepdim=True))
        loss.backward()  # culprit
        descend(net, 0.02)
print(float(loss.detach()))
