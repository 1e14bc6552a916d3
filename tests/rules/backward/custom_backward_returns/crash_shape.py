import torch


class RowSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(dim=1)

    @staticmethod
    def backward(ctx, grad):
        return grad  # culprit: return-grad


x = torch.randn(1, 32, 100, requires_grad=True)
RowSum.apply(x).sum().backward()  # culprit: call
# says: [1, 100] [1, 32, 100] dimension 1 32
