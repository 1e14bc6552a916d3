import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
x = torch.randn(4, 3)
x.requires_grad_(True)
score = net(x).sum()
score.backward()
step = 0.01 * -x.grad
