import torch


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        ctx.shape = x.shape
        return x * alpha

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.alpha, None


Scale.apply(torch.ones(2, 3, requires_grad=True), 0.5).sum().backward()
