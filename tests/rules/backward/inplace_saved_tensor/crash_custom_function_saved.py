import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)  # culprit: save
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


a = torch.randn(5, requires_grad=True)
b = a * 2
c = Square.apply(b)  # culprit: save
b.zero_()  # culprit: mutate
c.sum().backward()
