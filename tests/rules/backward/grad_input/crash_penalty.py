# says: `between`
import torch
from torch import nn


def penalty(critic, real, false):
    share = torch.rand(len(real), 1)
    between = share * real + (1 - share) * false  # culprit: create
    score = critic(between)
    gradient = torch.autograd.grad(score.sum(), between, create_graph=True)[0]  # culprit: operand
    return ((gradient.norm(dim=1) - 1) ** 2).mean()


torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
penalty(critic, torch.randn(5, 3), torch.randn(5, 3)).backward()
