"""A custom autograd Function whose backward forgets to spread the gradient over the dimension forward summed."""

import torch


class SumOverTime(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(dim=1)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


x = torch.randn(1, 32, 100, requires_grad=True)
SumOverTime.apply(x).pow(2).sum().backward()
