import torch
from torch.autograd import Function


class Clip(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward(x)
        ctx.low, ctx.high = low, high
        ctx.shape = x.shape
        ctx.n = x.size(0)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g = g.clone()
        g[(x < ctx.low) | (x > ctx.high)] = 0
        return g, None, None


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


class Counted(Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        grads = [None, None]
        if ctx.needs_input_grad[0]:
            grads[0] = g * w
        if ctx.needs_input_grad[1]:
            grads[1] = g * x
        return tuple(grads)


class Marked(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Hooked(Function):
    @staticmethod
    def forward(ctx, module, before, output):
        ctx.module = module
        ctx.before = before
        return output.detach()

    @staticmethod
    def backward(ctx, *args):
        ctx.before(ctx.module)
        return (None, None) + args


class Forward(Function):
    @staticmethod
    def forward(ctx, x, a, b):
        return x

    @staticmethod
    def backward(ctx, grads):
        raise NotImplementedError
        return grads, None
