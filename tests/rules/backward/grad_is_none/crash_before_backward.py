import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
loss = net(torch.randn(4, 3)).pow(2).mean()
scale = 1.0 / net.weight.grad.norm()  # culprit: operand
loss.backward()

# says: no backward has run
