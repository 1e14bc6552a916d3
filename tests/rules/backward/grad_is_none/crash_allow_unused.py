import torch
from torch import nn

torch.manual_seed(0)
body, spare = nn.Linear(3, 1), nn.Linear(3, 1)  # culprit: create
weights = [body.weight, spare.weight]
loss = body(torch.randn(4, 3)).pow(2).mean()
gradients = torch.autograd.grad(loss, weights, allow_unused=True)  # culprit: operand
updated = [w - 0.1 * g for w, g in zip(weights, gradients)]  # culprit: operand

# says: `spare.weight` [1, 3] allow_unused=True
