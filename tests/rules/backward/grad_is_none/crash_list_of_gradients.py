import torch
from torch import nn

torch.manual_seed(0)
first, second = nn.Linear(3, 3), nn.Linear(3, 3)  # culprit: create
parameters = [*first.parameters(), *second.parameters()]
loss = first(torch.randn(2, 3)).sum()
loss.backward()  # culprit: call
flat = torch.cat([p.grad.flatten() for p in parameters])  # culprit: operand

# says: `second.weight` [3, 3]
