# says: `Reverse.backward` strength
import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None  # culprit: operand


torch.manual_seed(0)
features, domain = nn.Linear(3, 4), nn.Linear(4, 2)
out = domain(Reverse.apply(features(torch.randn(5, 3)), 0.5))  # culprit: call
out.square().mean().backward()
