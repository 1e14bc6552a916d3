import torch


class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        if grad is None:
            return None, None
        return a.T @ grad, grad @ b.T  # culprit: return-grad


a, b = torch.randn(2, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)
MatMul.apply(a, b).sum().backward()  # culprit: call
