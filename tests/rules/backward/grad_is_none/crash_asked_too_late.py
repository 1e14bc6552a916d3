import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
x = torch.randn(4, 3)
score = net(x).sum()
x.requires_grad_()  # culprit: call
score.backward()  # culprit: call
step = 0.01 * -x.grad  # culprit: operand

# says: `x` [4, 3] did not require grad when it was used
