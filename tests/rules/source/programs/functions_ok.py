import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Sum(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.shape = x.shape
        return torch.sum(x, dim=1)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output.unsqueeze(1).expand_as(x)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, scale, dim=1):
        ctx.scale = scale
        ctx.dim = dim
        return x * scale

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        grad_input = grad.clone()
        grad_input *= ctx.scale
        return grad_input, None, None


class ExtraNone(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


class Many(Function):
    @staticmethod
    def forward(ctx, *xs):
        return sum(xs)

    @staticmethod
    def backward(ctx, grad):
        return (grad,) * 3


class NewStyle(Function):
    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.k = inputs

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


class Conditional(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = grad * y
        if ctx.needs_input_grad[1]:
            gy = grad * x
        return gx, gy


class Plain:
    def forward(ctx, x):
        ctx.x = x
        return x

    def backward(ctx, grad):
        grad *= 2
        return grad


class ByClass(torch.autograd.Function):
    @classmethod
    def forward(cls, ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @classmethod
    def backward(cls, ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, grad * x
