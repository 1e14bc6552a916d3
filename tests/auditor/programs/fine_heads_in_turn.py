# Two heads with optimizers of their own take their steps first; the trunk adds up the gradients of both losses on purpose.
import torch
from torch import nn

torch.manual_seed(0)
trunk, one, two = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 1), nn.Linear(8, 1)
slow, first, second = (torch.optim.SGD(net.parameters(), lr=0.05) for net in (trunk, one, two))
for _ in range(6):
    for optimizer in (slow, first, second):
        optimizer.zero_grad()
    x = torch.randn(12, 6)
    (one(trunk(x)) - x[:, :1]).pow(2).mean().backward()
    first.step()
    (two(trunk(x)) + x[:, :1]).pow(2).mean().backward()
    second.step()
    slow.step()
