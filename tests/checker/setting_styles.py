"""Right Functions with a learned limit, slope or width, which is positive by nature, and with outputs that may be used alone.

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


def _r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


INPUTS = {
    "ClippedRelu": lambda: (_r(3, 4), torch.tensor([0.6])),
    "LimitPerColumn": lambda: (_r(3, 4), torch.tensor([0.6, 0.8, 0.5, 0.9])),
    "SlopeFromOutput": lambda: (_r(2, 3, 4, 2), torch.tensor([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1)),
    "MeanAndWidth": lambda: (_r(4, 3), _r(2, 3), _r(2, 3).cos()),
}
