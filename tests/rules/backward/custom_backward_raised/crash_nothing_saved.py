# says: `save_for_backward` `mask`
import torch


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.mask = (x > low) & (x < high)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors  # culprit: operand
        return grad * mask, None, None


x = torch.randn(5, requires_grad=True)
Clip.apply(x * 2, -1, 1).sum().backward()  # culprit: call
