import torch


class Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x * weight + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * weight, grad * x  # culprit: return-grad


args = [torch.randn(4, requires_grad=True) for _ in range(3)]
Weighted.apply(*args).sum().backward()  # culprit: call
# says: bias
