import torch
from torch.autograd import Function


class Clip(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.x = x  # culprit: ctx-holds-tensor
        ctx.low, ctx.high = low, high
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, g):
        mask = (ctx.x >= ctx.low) & (ctx.x <= ctx.high)
        return g * mask  # culprit: backward-return-count


class Scale(torch.autograd.Function):
    def forward(ctx, x, s):  # culprit: function-not-static
        ctx.s = s
        return x * s

    @staticmethod
    def backward(ctx, grad_output):
        grad_output *= ctx.s  # culprit: inplace-on-grad-output
        return grad_output, None


class Quant(Function):
    @staticmethod
    def forward(ctx, x, bits=8):
        scale = x.abs().max()
        ctx.scale = scale
        ctx.save_for_backward(x)
        return torch.round(x / scale * 2**bits) * scale / 2**bits

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad.masked_fill_(x.abs() > ctx.scale, 0)  # culprit: inplace-on-grad-output
        return grad, None, None


class Dot(Function):
    @staticmethod
    def forward(ctx, a, b):
        out = (a * b).sum()
        ctx.a, ctx.b = a, b  # culprit: ctx-holds-tensor
        return out

    @staticmethod
    def backward(ctx, g):
        ga = g * ctx.b
        gb = g * ctx.a
        return ga, gb, None, g  # culprit: backward-return-count


class Two(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin(), x.cos()

    @staticmethod
    def backward(ctx, g1, g2):
        (x,) = ctx.saved_tensors
        if ctx.needs_input_grad[0]:
            return g1 * x.cos() - g2 * x.sin()
        return None, None


class Hinge(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (1 - x * y).clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        gx = g.clone()
        gx[x * y >= 1] = 0
        gx = -gx * y
        return gx  # culprit: backward-return-count
