import torch
from torch import nn

critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
x = torch.randn(5, 3, requires_grad=True)
score = critic(x)
(slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
penalty = (slope.norm(dim=1) - 1).pow(2).mean()
penalty.backward()  # culprit: call
penalty.backward()  # culprit: call
# says: `penalty`
