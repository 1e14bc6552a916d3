import torch
from torch.autograd import Function


class Held(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.x = x  # culprit: ctx-holds-tensor
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.x * grad_output * ctx.scale, None


class HeldOutput(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y  # culprit: ctx-holds-tensor
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y


class TooFew(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.t(), x.t() @ grad  # culprit: backward-return-count


class TooMany(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, grad  # culprit: backward-return-count


class OneForTwo(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k  # culprit: backward-return-count


class NotStatic(Function):
    def forward(ctx, x):  # culprit: function-not-static
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Writes(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        grad_output[x < 0] = 0  # culprit: inplace-on-grad-output
        return grad_output


class Scales(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)  # culprit: inplace-on-grad-output
