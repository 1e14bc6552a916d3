"""Right Functions with a limit, slope, width or flag, learned or given, with outputs that may be used alone, and a recurrence.

Each is used as it is and, by the tests, with one slip.
"""

import torch
import torch.nn.functional as F
from torch.autograd import Function


class ClippedRelu(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        return torch.minimum(x.clamp(min=0), alpha)

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        inside = (x > 0) & (x < alpha)
        above = x >= alpha
        return g * inside.to(g.dtype), (g * above.to(g.dtype)).sum().reshape(alpha.shape)


class LimitPerColumn(Function):
    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x, limit)
        return torch.max(torch.min(x, limit), -limit)

    @staticmethod
    def backward(ctx, g):
        x, limit = ctx.saved_tensors
        high, low = x > limit, x < -limit
        return g.masked_fill(high | low, 0.0), (g * high - g * low).sum_to_size(limit.shape)


class SlopeFromOutput(Function):
    """Knows by the output which side of zero the input was on: so it is as long as the slope is positive."""

    @staticmethod
    def forward(ctx, x, slope):
        y = torch.where(x > 0, x, x * slope)
        ctx.save_for_backward(y, slope)
        return y

    @staticmethod
    def backward(ctx, g):
        y, slope = ctx.saved_tensors
        below = y < 0
        return torch.where(below, g * slope, g), (g * torch.where(below, y / slope, 0.0)).sum((0, 2, 3), keepdim=True)


class MeanAndWidth(Function):
    @staticmethod
    def forward(ctx, x, w_mean, w_width):
        ctx.set_materialize_grads(False)
        before = x @ w_width.t()
        ctx.save_for_backward(x, w_mean, w_width, before)
        return x @ w_mean.t(), F.softplus(before)

    @staticmethod
    def backward(ctx, g_mean, g_width):
        x, w_mean, w_width, before = ctx.saved_tensors
        gx = gw_mean = gw_width = None
        if g_mean is not None:
            gx = g_mean @ w_mean
            gw_mean = g_mean.t() @ x
        if g_width is not None:
            d = g_width * torch.sigmoid(before)
            gx = d @ w_width if gx is None else gx + d @ w_width
            gw_width = d.t() @ x
        return gx, gw_mean, gw_width


class SmoothLoss(Function):
    """A threshold that few of the differences are below."""

    @staticmethod
    def forward(ctx, pred, target, beta):
        d = pred - target
        ctx.save_for_backward(d)
        ctx.beta = beta
        return torch.where(d.abs() < beta, 0.5 * d * d / beta, d.abs() - 0.5 * beta).sum()

    @staticmethod
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        gp = g * torch.where(d.abs() < ctx.beta, d / ctx.beta, d.sign())
        return gp, -gp, None


class PowerEitherWay(Function):
    @staticmethod
    def forward(ctx, x, y, power: int, negate: bool):
        ctx.power, ctx.negate = power, negate
        ctx.save_for_backward(x, y)
        return -(x**power) * y if negate else x**power * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if ctx.negate:
            g = -g
        return g * ctx.power * x ** (ctx.power - 1) * y, g * x**ctx.power, None, None


class Recurrence(Function):
    @staticmethod
    def forward(ctx, x, a):
        h, states = torch.zeros_like(a), []
        for t in range(x.shape[0]):
            h = a * h + x[t]
            states.append(h)
        ctx.save_for_backward(a, torch.stack(states))
        return torch.stack(states)

    @staticmethod
    def backward(ctx, g):
        a, states = ctx.saved_tensors
        gx, ga, gh = torch.empty_like(g), torch.zeros_like(a), torch.zeros_like(a)
        for t in reversed(range(g.shape[0])):
            gh = gh + g[t]
            previous = states[t - 1] if t > 0 else torch.zeros_like(a)
            gx[t] = gh
            ga = ga + gh * previous
            gh = gh * a
        return gx, ga


def _r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


INPUTS = {
    "ClippedRelu": lambda: (_r(3, 4), torch.tensor([0.6])),
    "LimitPerColumn": lambda: (_r(3, 4), torch.tensor([0.6, 0.8, 0.5, 0.9])),
    "SlopeFromOutput": lambda: (_r(2, 3, 4, 2), torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)),
    "SmoothLoss": lambda: (_r(3, 4), _r(3, 4) - torch.tensor([0.45, 2, -2, -3]), 0.5),
    "PowerEitherWay": lambda: (_r(3, 4), _r(3, 4).cos(), 3, True),
    "Recurrence": lambda: (_r(5, 3), torch.tensor([0.4, 0.9, 0.6])),
    "MeanAndWidth": lambda: (_r(4, 3), _r(2, 3), _r(2, 3).cos()),
}
