# says: `TwoOut.backward` takes 1 gradient, but forward has 2 outputs
import torch


class TwoOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, grad):  # culprit: operand
        a, b = ctx.saved_tensors
        return grad * b, grad * a


product, total = TwoOut.apply(torch.ones(3, requires_grad=True), torch.ones(3))  # culprit: call
(product.sum() + total.sum()).backward()
