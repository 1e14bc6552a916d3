"""Functions whose file shows how they are called, and what a first guess hides; the comment above each says what `check` makes of it.

`right`, `surrogate`, or the words of the one finding; `# culprit` marks its line.
"""

import math

import torch
from torch import nn
from torch.autograd import Function


# is: backward returns 1 gradient for 2 inputs
class SwishOneGradient(Function):
    @staticmethod
    def forward(ctx, x, beta=1.0):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return g * (s + ctx.beta * x * s * (1 - s))  # culprit


class Swish(nn.Module):
    def __init__(self, beta=1.5):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return SwishOneGradient.apply(x, self.beta)


# is: backward returns 2 gradients for 3 inputs
class LinearTwoGradients(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        out = x.mm(weight.t())
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g.mm(weight), g.t().mm(x)  # culprit


# is: backward raises IndexError
class LinearAsksTooFar(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x.mm(weight.t())
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        grad_bias = None
        if bias is not None and ctx.needs_input_grad[3]:  # culprit
            grad_bias = g.sum(0)
        return g.mm(weight), g.t().mm(x), grad_bias


# is: right
class LinearOfBoth(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x.mm(weight.t())
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, g):
        x, weight, bias = ctx.saved_tensors
        return g.mm(weight), g.t().mm(x), None if bias is None else g.sum(0)


class Linears(nn.Module):
    def __init__(self, i, o, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(o, i))
        self.bias = nn.Parameter(torch.zeros(o)) if bias else None

    def forward(self, x):
        for one in (LinearTwoGradients, LinearAsksTooFar, LinearOfBoth):
            x = one.apply(x, self.weight, self.bias)
        return LinearTwoGradients.apply(LinearOfBoth.apply(x, self.weight, self.bias), self.weight, self.bias)


# is: backward returns the gradient for `weight` in the place of `indices`
class LookupInTheWrongPlace(Function):
    @staticmethod
    def forward(ctx, indices, weight, padding):
        ctx.save_for_backward(indices)
        ctx.shape = weight.shape
        return weight.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)

    @staticmethod
    def backward(ctx, g):
        (indices,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.shape).index_add_(0, indices.reshape(-1), g.reshape(indices.numel(), -1))
        return grad, None, None  # culprit


# is: backward returns the gradient for `edge_weight` in the place of `edges`
class MessagesInTheWrongPlace(Function):
    @staticmethod
    def forward(ctx, x, edges, edge_weight):
        source, target = edges
        ctx.save_for_backward(x, edges, edge_weight)
        return torch.zeros_like(x).index_add_(0, target, x[source] * edge_weight.unsqueeze(-1))

    @staticmethod
    def backward(ctx, g):
        x, edges, edge_weight = ctx.saved_tensors
        source, target = edges
        grad_x = torch.zeros_like(x).index_add_(0, source, g[target] * edge_weight.unsqueeze(-1))
        return grad_x, (g[target] * x[source]).sum(-1), None  # culprit


# is: backward returns a tensor float64[3, 4] for `scale`, which is no tensor
class QuantiserInTheWrongPlace(Function):
    @staticmethod
    def forward(ctx, x, scale, low, high):
        q = torch.round(x / scale)
        ctx.save_for_backward((q >= low) & (q <= high))
        return q.clamp(low, high) * scale

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return None, g * inside, None, None  # culprit


class QuantisedLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, QuantiserInTheWrongPlace.apply(self.weight, 0.05, -128, 127), self.bias)


# is: the gradient for `scale` has shape [1, 4]; `scale` has shape [6, 1]
class ScaledRowsReducedAcross(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale, (g * x).sum(0, keepdim=True)  # culprit


def reduced(grad, shape):
    for dim, n in enumerate(shape):
        if n == 1 and grad.shape[dim] != 1:
            grad = grad.mean(dim, keepdim=True)
    return grad


# is: the gradient for `scale` is 4 times too small
class ScaledRowsAveraged(Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale, reduced(g * x, scale.shape)  # culprit


def scaled(values, factor):
    return ScaledRowsReducedAcross.apply(values, factor) + ScaledRowsAveraged.apply(values, factor)


# is: right
class HuberOfAConstant(Function):
    """Its target requires no grad where it is called, and its predictions are computed."""

    @staticmethod
    def forward(ctx, pred, target, delta):
        err = pred - target
        ctx.save_for_backward(err)
        ctx.delta = delta
        return torch.where(err.abs() <= delta, 0.5 * err**2, delta * (err.abs() - 0.5 * delta)).sum()

    @staticmethod
    def backward(ctx, g):
        (err,) = ctx.saved_tensors
        return g * err.clamp(-ctx.delta, ctx.delta), None, None


# is: `err.sign()` should be `err.sign() * ctx.delta`
class HuberWithoutDelta(Function):
    @staticmethod
    def forward(ctx, pred, target, delta):
        err = pred - target
        small = err.abs() <= delta
        ctx.save_for_backward(err, small)
        ctx.delta = delta
        return torch.where(small, 0.5 * err**2, delta * (err.abs() - 0.5 * delta)).sum()

    @staticmethod
    def backward(ctx, g):
        err, small = ctx.saved_tensors
        return g * torch.where(small, err, err.sign()), None, None  # culprit


# is: for other masks
class MeanOfAllSteps(Function):
    @staticmethod
    def forward(ctx, hidden, mask):
        m = mask.unsqueeze(-1).to(hidden.dtype)
        count = m.sum(1).clamp(min=1)
        ctx.save_for_backward(m, count)
        return (hidden * m).sum(1) / count

    @staticmethod
    def backward(ctx, g):
        m, count = ctx.saved_tensors
        return (g / m.size(1)).unsqueeze(1) * m, None  # culprit


# is: training=False
class NormWithoutScaleInEvaluation(Function):
    @staticmethod
    def forward(ctx, x, running_mean, running_var, training):
        mean, var = (x.mean(0), x.var(0, unbiased=False)) if training else (running_mean, running_var)
        inv = (var + 1e-5).rsqrt()
        ctx.save_for_backward((x - mean) * inv, inv)
        ctx.training = training
        return (x - mean) * inv

    @staticmethod
    def backward(ctx, g):
        xhat, inv = ctx.saved_tensors
        if ctx.training:
            return inv * (g - g.mean(0) - xhat * (g * xhat).mean(0)), None, None, None
        return g, None, None, None  # culprit


# is: right
class DropsOrNot(Function):
    """The other way round it draws random numbers: nothing is held against it for that."""

    @staticmethod
    def forward(ctx, x, p=0.5, training=False):
        ctx.mask = (torch.rand_like(x) >= p).to(x) / (1 - p) if training else None
        return x.clone() if ctx.mask is None else x * ctx.mask

    @staticmethod
    def backward(ctx, g):
        return (g if ctx.mask is None else g * ctx.mask), None, None


# is: `dy * cdf` should be `(dy * cdf) * b`
class GatedHalves(Function):
    @staticmethod
    def forward(ctx, x):
        a, b = x.chunk(2, dim=-1)
        cdf = 0.5 * (1 + torch.erf(b / math.sqrt(2)))
        ctx.save_for_backward(a, b, cdf)
        return a * b * cdf

    @staticmethod
    def backward(ctx, dy):
        a, b, cdf = ctx.saved_tensors
        pdf = torch.exp(-0.5 * b * b) / math.sqrt(2 * math.pi)
        da = dy * cdf  # culprit
        db = dy * a * (cdf + b * pdf)
        return torch.cat([da, db], dim=-1)


# is: `(p * dp).sum()` should be `(p * dp).sum(ctx.dim, keepdim=True)`
class SoftmaxSummedOverAll(Function):
    @staticmethod
    def forward(ctx, scores, dim):
        p = scores.softmax(dim)
        ctx.save_for_backward(p)
        ctx.dim = dim
        return p

    @staticmethod
    def backward(ctx, dp):
        (p,) = ctx.saved_tensors
        inner = (p * dp).sum()  # culprit
        return p * (dp - inner), None


# is: the gradient for `x` is shifted along dimension 1
class RolledOn(Function):
    @staticmethod
    def forward(ctx, x, steps):
        ctx.steps = steps
        return torch.roll(x, steps, dims=-1)

    @staticmethod
    def backward(ctx, g):
        return torch.roll(g, ctx.steps, dims=-1), None  # culprit


# is: the gradient for `weight` is 3.333 times too large
class PartsThatMayBeLeftOut(Function):
    @staticmethod
    def forward(ctx, x, residual=None, weight=None, scale=1.0):
        y = x * scale if weight is None else x * scale * weight
        ctx.save_for_backward(x, weight)
        ctx.scale, ctx.added = scale, residual is not None
        return y if residual is None else y + residual

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx, gw = g * ctx.scale, None
        if weight is not None:
            gw = (g * x).reshape(-1, weight.numel()).sum(0)  # culprit
            gx = gx * weight
        return gx, g if ctx.added else None, gw, None


def put_together(x, residual=None, weight=None, scale=1.0):
    return PartsThatMayBeLeftOut.apply(x, residual, weight, scale)


# is: for values a fifth as large
class HingeOfDistances(Function):
    @staticmethod
    def forward(ctx, a, b, margin):
        diff = a - b
        dist = diff.pow(2).sum(1).add(1e-9).sqrt()
        gap = (margin - dist).clamp(min=0)
        ctx.save_for_backward(diff, dist, gap)
        return (dist + gap.pow(2)).sum()

    @staticmethod
    def backward(ctx, g):
        diff, dist, gap = ctx.saved_tensors
        ga = g * ((1 + 2 * gap) / dist).unsqueeze(1) * diff  # culprit
        return ga, None, None


class CodebookExchanged(Function):
    @staticmethod
    def forward(ctx, z, codebook):
        index = torch.cdist(z, codebook).argmin(-1)
        ctx.save_for_backward(index, codebook)
        return codebook[index]

    @staticmethod
    def backward(ctx, g):
        index, codebook = ctx.saved_tensors
        gc = torch.zeros_like(codebook).index_add_(0, index, g)
        return gc, g


class SecondDerivativeLeftOut(Function):
    @staticmethod
    def forward(ctx, grad, x):
        ctx.save_for_backward(x)
        return 3 * x**2 * grad

    @staticmethod
    def backward(ctx, gg):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gg, None


# is: what that one's backward returns is the second derivative
class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return SecondDerivativeLeftOut.apply(g, x)  # culprit


def main():
    x, scale = torch.randn(6, 4, requires_grad=True), torch.randn(6, 1, requires_grad=True)
    scaled(x, scale).sum().backward()
    put_together(x)
    put_together(x, torch.randn(6, 4, requires_grad=True), torch.randn(4, requires_grad=True), scale=0.3)
    HingeOfDistances.apply(x, torch.randn(6, 4), 1.0)
    w, targets = torch.randn(5, 1, requires_grad=True), torch.randn(20, 1)
    (HuberOfAConstant.apply(torch.randn(20, 5) @ w, targets, 1.0) + HuberWithoutDelta.apply(torch.randn(20, 5) @ w, targets, 1.0)).backward()
    MeanOfAllSteps.apply(torch.randn(4, 6, 8, requires_grad=True), torch.ones(4, 6, dtype=torch.bool)).sum().backward()
    (first,) = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
    first.sum().backward()
