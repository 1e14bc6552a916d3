"""Functions as files have them, without inputs: what `check` has to make of each is in the comment above it.

`right`, `surrogate`, or the words of the one finding; `# culprit` marks its line.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function


# is: surrogate
class LearnedStep(Function):
    @staticmethod
    def forward(ctx, x, alpha, g, low, high):
        ctx.save_for_backward(x, alpha)
        ctx.other = g, low, high
        return torch.round(torch.div(x, alpha)).clamp(low, high) * alpha

    @staticmethod
    def backward(ctx, grad):
        x, alpha = ctx.saved_tensors
        g, low, high = ctx.other
        q = x / alpha
        small, big = (q < low).to(x.dtype), (q > high).to(x.dtype)
        middle = 1.0 - small - big
        grad_alpha = ((small * low + big * high + middle * (-q + q.round())) * grad * g).sum().unsqueeze(0)
        return middle * grad, grad_alpha, None, None, None


class Quantised(nn.Module):
    def __init__(self, bits=4):
        super().__init__()
        self.bits = bits
        self.alpha = nn.Parameter(torch.tensor([0.3]))

    def forward(self, x):
        low, high = -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
        return LearnedStep.apply(x, self.alpha, 1.0 / (x.numel() * high) ** 0.5, low, high)


def per_row(x, bits=4):
    scale = x.detach().abs().amax(dim=-1, keepdim=True) / (2 ** (bits - 1) - 1)
    return x.div(scale).round().mul(scale)


# is: surrogate
class Quantise(Function):
    @staticmethod
    def forward(ctx, x, how):
        return how(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantisedLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, Quantise.apply(self.weight, per_row), self.bias)


# is: `grad[index]` should be `(grad / count)[index]`
class MeanByIndex(Function):
    @staticmethod
    def forward(ctx, src, index, dim_size):
        out, count = src.new_zeros(dim_size, src.size(1)), src.new_zeros(dim_size, 1)
        out.index_add_(0, index, src)
        count.index_add_(0, index, torch.ones_like(src[:, :1]))
        count.clamp_(min=1)
        ctx.save_for_backward(index, count)
        return out / count

    @staticmethod
    def backward(ctx, grad):
        index, count = ctx.saved_tensors
        return grad[index], None, None  # culprit


# is: write `(0, 2, 3)` instead of `(0, 2)`
class BiasAct(Function):
    @staticmethod
    def forward(ctx, x, bias):
        y = (x + bias.view(1, -1, 1, 1)).clamp(min=0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        dx = grad * (y > 0)
        return dx, dx.sum(dim=(0, 2))  # culprit


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


# is: write `rotate(grad, cos, -sin)` instead of `rotate(grad, cos, sin)`
class Rotary(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate(x, cos, sin)

    @staticmethod
    def backward(ctx, grad):
        cos, sin = ctx.saved_tensors
        return rotate(grad, cos, sin), None, None  # culprit


# is: right
class GatedCell(Function):
    @staticmethod
    def forward(ctx, gates, c):
        i, f, g, o = gates.chunk(4, dim=1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        new = f * c + i * g
        ctx.save_for_backward(i, f, g, o, c, new.tanh())
        return o * new.tanh(), new

    @staticmethod
    def backward(ctx, dh, dc):
        i, f, g, o, c, t = ctx.saved_tensors
        d = dc + dh * o * (1 - t * t)
        gates = [d * g * i * (1 - i), d * c * f * (1 - f), d * i * (1 - g * g), dh * t * o * (1 - o)]
        return torch.cat(gates, dim=1), d * f


# is: the gradient for `bias` is 2 times too large
class OptionalBias(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight, bias)
        out = x @ weight.t()
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias = ctx.saved_tensors
        db = 2 * grad.sum(0) if bias is not None else None  # culprit
        return grad @ weight, grad.t() @ x, db


# is: right
class OneOf(Function):
    @staticmethod
    def forward(ctx, x, idx):
        ctx.shape, ctx.idx = x.shape, idx
        return x[idx].clone()

    @staticmethod
    def backward(ctx, grad):
        out = grad.new_zeros(ctx.shape)
        out[ctx.idx] = grad
        return out, None


# is: tau is 0.7
class Tempered(Function):
    @staticmethod
    def forward(ctx, logits, tau=0.7, dim=-1):
        y = torch.softmax(logits / tau, dim=dim)
        ctx.save_for_backward(y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return y * (grad - (grad * y).sum(ctx.dim, keepdim=True)), None, None  # culprit


# is: right
class SquareRoot(Function):
    """Of a symmetric matrix: eigh reads one triangle."""

    @staticmethod
    def forward(ctx, matrix):
        w, v = np.linalg.eigh(matrix.detach().numpy())
        root = torch.from_numpy((v * np.sqrt(np.clip(w, 0, None))) @ v.T).to(matrix)
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx, grad):
        w, v = np.linalg.eigh(ctx.saved_tensors[0].numpy())
        g = grad.detach().numpy()
        return torch.from_numpy(v @ ((v.T @ g @ v) / np.add.outer(w, w)) @ v.T)


# is: the gradients for `a` and `b` are wrong
class Solve(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.from_numpy(np.linalg.solve(a.detach().numpy(), b.detach().numpy()))
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, grad):
        a, x = ctx.saved_tensors
        db = torch.linalg.solve(a, grad)  # culprit
        return -db.unsqueeze(-1) * x, db


# is: jvp does not return the change of output 1: 0.5 times
class Cube(Function):
    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad, grad_slope):
        (x,) = ctx.saved_tensors
        return grad * 3 * x**2 + grad_slope * 6 * x

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return tangent * 3 * x**2, tangent * 3 * x  # culprit


# is: not checked: forward only keeps back for backward
class Permute(Function):
    @staticmethod
    def forward(ctx, x, order, back):
        ctx.save_for_backward(back)
        return x[order]

    @staticmethod
    def backward(ctx, grad):
        (back,) = ctx.saved_tensors
        return grad[back], None, None


# is: right
class LengthBeside(Function):
    """A floating-point output that nothing is trained through."""

    @staticmethod
    def forward(x):
        length = x.square().sum(-1, keepdim=True).sqrt()
        return x / length, length

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx, grad, _):
        unit, length = ctx.saved_tensors
        return (grad - unit * (grad * unit).sum(-1, keepdim=True)) / length


# is: leaves out what comes back through output 1
class LengthForgotten(Function):
    @staticmethod
    def forward(ctx, x):
        length = x.square().sum(-1, keepdim=True).sqrt()
        unit = x / length
        ctx.save_for_backward(unit, length)
        return unit, length

    @staticmethod
    def backward(ctx, grad, grad_length):
        unit, length = ctx.saved_tensors
        return (grad - unit * (grad * unit).sum(-1, keepdim=True)) / length  # culprit


# is: right
class NormByStatistics(Function):
    """Six inputs that have to fit one another, two of them constants."""

    @staticmethod
    def forward(ctx, x, gain, shift, centre, spread, floor):
        shape = (1, -1) + (1,) * (x.dim() - 2)
        scale = (spread + floor).rsqrt()
        unit = (x - centre.view(shape)) * scale.view(shape)
        ctx.save_for_backward(unit, gain, scale)
        return unit * gain.view(shape) + shift.view(shape)

    @staticmethod
    def backward(ctx, grad):
        unit, gain, scale = ctx.saved_tensors
        shape, dims = (1, -1) + (1,) * (grad.dim() - 2), [d for d in range(grad.dim()) if d != 1]
        return grad * (gain * scale).view(shape), (grad * unit).sum(dims), grad.sum(dims), None, None, None


# is: right
class LowRank(Function):
    """A frozen matrix beside two trained ones."""

    @staticmethod
    def forward(ctx, x, w, down, up, alpha: float):
        ctx.save_for_backward(x, w, down, up)
        ctx.scale = alpha / down.shape[0]
        return x @ w.T + (x @ down.T) @ up.T * ctx.scale

    @staticmethod
    def backward(ctx, grad):
        x, w, down, up = ctx.saved_tensors
        rows, grads = x.flatten(0, -2), grad.flatten(0, -2)
        grad_down = ctx.scale * (grads @ up).T @ rows
        grad_up = ctx.scale * grads.T @ (rows @ down.T)
        return grad @ w + ctx.scale * (grad @ up) @ down, None, grad_down, grad_up, None


# is: right
class WeightedLoss(Function):
    """The weights of classes are no parameters, whatever they are called."""

    @staticmethod
    def forward(ctx, logits, target, weight):
        logp, w = logits.log_softmax(1), weight[target]
        ctx.save_for_backward(logp.exp(), target, w)
        return -(w * logp.gather(1, target[:, None]).squeeze(1)).sum() / len(target)

    @staticmethod
    def backward(ctx, grad):
        p, target, w = ctx.saved_tensors
        return grad * (p - F.one_hot(target, p.size(1))) * w[:, None] / len(target), None, None


# is: right
class StepSize(Function):
    """A scale that is one number, which backward asks for its shape."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale * scale, (2 * grad * x * scale).sum().reshape(scale.shape)


# is: should be `out.index_add_(0, index, grad)`
class PicksTwice(Function):
    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        out = grad.new_zeros(ctx.shape)
        out[index] = grad  # culprit
        return out, None


# is: the gradient for `limit` has the wrong sign
class Shrink(Function):
    """It rounds x (its sign), and not what has the wrong sign."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x, limit)
        return x.sign() * (x.abs() - limit).clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        x, limit = ctx.saved_tensors
        kept = grad * (x.abs() > limit)
        return kept, kept * x.sign()  # culprit


# is: right
class NormWhileTraining(Function):
    """It keeps running statistics, which autograd has no business with."""

    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, momentum, eps):
        mean, var = x.mean(0), x.var(0, unbiased=False)
        running_mean.mul_(1 - momentum).add_(momentum * mean)
        scale = (var + eps).rsqrt()
        unit = (x - mean) * scale
        ctx.save_for_backward(unit, weight, scale)
        return unit * weight + bias

    @staticmethod
    def backward(ctx, grad):
        unit, weight, scale = ctx.saved_tensors
        inner = grad * weight
        dx = scale * (inner - inner.mean(0) - unit * (inner * unit).mean(0))
        return dx, (grad * unit).sum(0), grad.sum(0), None, None, None


# is: not checked: forward expects a symmetric matrix for matrix
class Root(Function):
    @staticmethod
    def forward(ctx, matrix):
        values, vectors = torch.linalg.eigh(matrix)
        roots = values.clamp(min=0).sqrt()
        ctx.save_for_backward(roots, vectors)
        return vectors @ torch.diag_embed(roots) @ vectors.mT

    @staticmethod
    def backward(ctx, grad):
        roots, vectors = ctx.saved_tensors
        inner = vectors.mT @ grad @ vectors / (roots[..., :, None] + roots[..., None, :])
        return vectors @ inner @ vectors.mT


if __name__ == "__main__":
    k = torch.randn(5, 5, dtype=torch.float64)
    k = (k @ k.t()).requires_grad_()
    SquareRoot.apply(k).sum().backward()
    a = torch.randn(4, 4, dtype=torch.float64) + 4 * torch.eye(4, dtype=torch.float64)
    a.requires_grad_()
    Solve.apply(a, torch.randn(4, dtype=torch.float64, requires_grad=True)).sum().backward()


# is: surrogate
class HardGate(Function):
    """A gradient for what the gate shut out, as sparse training wants it, is no slip."""

    @staticmethod
    def forward(ctx, score, x):
        gate = (score > 0).to(x.dtype)
        ctx.save_for_backward(x)
        return gate * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x, grad


# is: right
class OntoBuffer(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad @ weight, None


class Projection(nn.Module):
    """The weight that is passed on is a buffer: nobody trains it."""

    def __init__(self, width, height):
        super().__init__()
        self.register_buffer("weight", torch.randn(height, width))

    def forward(self, x):
        return OntoBuffer.apply(x, self.weight)


# is: right
class FrozenScale(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return grad * weight, None


# is: the gradient for `x` is right only where x > lo
class BetweenTwo(Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.lo, ctx.hi = lo, hi
        return x.clamp(lo, hi)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x < ctx.hi), None, None  # culprit


# is: its place in what backward returns must be None
class NumberBetween(Function):
    @staticmethod
    def forward(ctx, x, scale: float, w):
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        return scale * F.linear(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        grad_x = ctx.scale * g @ w
        grad_w = ctx.scale * g.t() @ x
        return grad_x, grad_w, None  # culprit


# is: RuntimeError
class OneDimensionOnly(Function):
    @staticmethod
    def forward(ctx, x, dim):
        m = x.max(dim, keepdim=True).values
        out = m + (x - m).exp().sum(dim, keepdim=True).log()
        ctx.save_for_backward(x, out)
        return out.squeeze(dim)

    @staticmethod
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return g * (x - out).exp(), None  # culprit


# is: write `g.permute(1, 3, 0, 2, 4)` instead of `g.permute(1, 3, 2, 0, 4)`
class SeveralHeads(Function):
    @staticmethod
    def forward(ctx, qkv, n_heads):
        b, t, width = qkv.shape
        q, k, v = qkv.view(b, t, 3, n_heads, width // 3 // n_heads).permute(2, 0, 3, 1, 4).unbind(0)
        return q.clone(), k.clone(), v.clone()

    @staticmethod
    def backward(ctx, gq, gk, gv):
        g = torch.stack([gq, gk, gv], 0)
        g = g.permute(1, 3, 2, 0, 4)  # culprit
        b, t, *rest = g.shape
        return g.reshape(b, t, rest[0] * rest[1] * rest[2]), None


# is: right
class EmptyBatchRefused(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.einsum("oc,bchw->bohw", w, x)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        flat = g.reshape(g.shape[0], g.shape[1], -1)
        grad_w = (flat @ x.flatten(2).transpose(1, 2)).sum(0)
        return torch.einsum("oc,bohw->bchw", w, g), grad_w


# is: the gradient for `start` has the wrong sign
class ConstantInTheExample(Function):
    @staticmethod
    def forward(ctx, x, start):
        return x.cumsum(1) + start[:, None]

    @staticmethod
    def backward(ctx, g):
        return g.flip(1).cumsum(1).flip(1), -g.sum(1)  # culprit


def example():
    return ConstantInTheExample.apply(torch.randn(3, 5, requires_grad=True), torch.zeros(3))


# is: write `(g / count.unsqueeze(-1))[index]` instead of `g[index]`
class SavedForNothing(Function):
    @staticmethod
    def forward(ctx, src, index, nodes):
        total = src.new_zeros(nodes, src.size(1)).index_add_(0, index, src)
        count = torch.bincount(index, minlength=nodes).clamp(min=1).to(src.dtype)
        ctx.save_for_backward(index, count)
        return total / count.unsqueeze(1)

    @staticmethod
    def backward(ctx, g):
        index, count = ctx.saved_tensors
        return g[index], None, None  # culprit


# is: stride=ctx.stride, padding=ctx.padding)` instead of
class OptionForgotten(Function):
    @staticmethod
    def forward(ctx, x, w, stride, padding):
        ctx.save_for_backward(x, w)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(x, w, stride=stride, padding=padding)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        grad_x = torch.nn.grad.conv2d_input(x.shape, w, g, stride=ctx.stride, padding=ctx.padding)
        grad_w = torch.nn.grad.conv2d_weight(x, w.shape, g, stride=ctx.stride)  # culprit
        return grad_x, grad_w, None, None


# is: write `((-inv).transpose(-1, -2) @ g @ inv.transpose(-1, -2))` instead of `-inv @ g @ inv`
class NeitherSideTurned(Function):
    @staticmethod
    def forward(ctx, m):
        inv = torch.linalg.inv(m)
        ctx.save_for_backward(inv)
        return inv

    @staticmethod
    def backward(ctx, g):
        (inv,) = ctx.saved_tensors
        return -inv @ g @ inv  # culprit


# is: write `2 * (d @ (P + P.transpose(-1, -2)) / 2)` instead of `2 * (d @ P)`
class TakenForSymmetric(Function):
    @staticmethod
    def forward(ctx, d, P):
        ctx.save_for_backward(d, P)
        return ((d @ P) * d).sum(-1)

    @staticmethod
    def backward(ctx, g):
        d, P = ctx.saved_tensors
        g = g.unsqueeze(-1)
        return g * (2 * (d @ P)), (g * d).t() @ d  # culprit


# is: write `(n - 1) * sd` instead of `n * sd`
class Unbiased(Function):
    @staticmethod
    def forward(ctx, x):
        sd = x.std(-1, keepdim=True)
        ctx.save_for_backward(x, sd)
        return sd

    @staticmethod
    def backward(ctx, g):
        x, sd = ctx.saved_tensors
        n = x.shape[-1]
        return g * (x - x.mean(-1, keepdim=True)) / (n * sd)  # culprit


# is: the gradient for `alpha` has only the term through
class PartOfASum(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x, alpha)
        a = alpha[None, :, None]
        return x + torch.sin(a * x) ** 2 / a

    @staticmethod
    def backward(ctx, g):
        x, alpha = ctx.saved_tensors
        a = alpha[None, :, None]
        grad_alpha = g * x * torch.sin(2 * a * x) / a  # culprit
        return g * (1 + torch.sin(2 * a * x)), grad_alpha.sum(dim=(0, 2))


# is: right
class ForTheOtherDevice(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    def forward(ctx, s, v):
        p = torch.softmax(s, -1)
        ctx.save_for_backward(p, v)
        return p @ v

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, g):
        p, v = ctx.saved_tensors
        grad_p = g @ v.transpose(-1, -2)
        return p * (grad_p - (grad_p * p).sum(-1, keepdim=True)), p.transpose(-1, -2) @ g


# is: right
class OpenEnded(Function):
    @staticmethod
    def forward(ctx, x, centers, h):
        k = torch.exp(-(x[:, None] - centers[None]).pow(2).sum(-1) / (2 * h * h))
        ctx.save_for_backward(x, centers, k)
        ctx.h = h
        return k.mean(1)

    @staticmethod
    def backward(ctx, g):
        x, c, k = ctx.saved_tensors
        w = (g[:, None] * k / (ctx.h**2 * c.shape[0]))[..., None] * (x[:, None] - c[None])
        return -w.sum(1), w.sum(0), None


# is: for sizes twice as large
class FirstWindowOnly(Function):
    @staticmethod
    def forward(ctx, x, k: int):
        b, t = x.shape
        n = t // k
        value, index = x[:, : n * k].reshape(b, n, k).max(-1)
        ctx.save_for_backward(index)
        ctx.t = t
        return value

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        out = g.new_zeros(g.shape[0], ctx.t)
        out.scatter_add_(-1, index, g)  # culprit
        return out, None


# is: write `x ** (ctx.n - 1)` instead of `x ** ctx.n`
class PowerTooHigh(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.n * x ** ctx.n, None  # culprit


# is: the gradient for `w` has the wrong sign
class Equation(Function):
    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        return torch.einsum("bgi,gio->bgo", x, w) + b

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        grad_w = torch.einsum("bgo,bgi->gio", g, x)
        return torch.einsum("bgo,gio->bgi", g, w), -grad_w, g.sum(0)  # culprit


# is: write `(union + s) ** 2` instead of `union + s`
class QuotientRule(Function):
    @staticmethod
    def forward(ctx, pred, target, smooth=1.0):
        both = (pred * target).sum()
        union = pred.sum() + target.sum()
        ctx.save_for_backward(target, both, union)
        ctx.smooth = smooth
        return 1 - (2 * both + smooth) / (union + smooth)

    @staticmethod
    def backward(ctx, g):
        target, both, union = ctx.saved_tensors
        s = ctx.smooth
        d = -(2 * target * (union + s) - (2 * both + s)) / (union + s)  # culprit
        return g * d, None, None


# is: write `(d.sum(1) - d.sum(0))` instead of `d.sum(1)`
class RowsWithoutColumns(Function):
    @staticmethod
    def forward(ctx, scores, labels):
        diff = scores[:, None] - scores[None, :]
        w = (labels[:, None] > labels[None, :]).to(scores.dtype)
        ctx.save_for_backward(diff, w)
        return (w * F.softplus(-diff)).sum()

    @staticmethod
    def backward(ctx, g):
        diff, w = ctx.saved_tensors
        d = -w * torch.sigmoid(-diff)
        return g * d.sum(1), None  # culprit


# is: write `reversed(range(g.shape[-1]))` instead of `range(g.shape[-1])`
class NotFromTheEnd(Function):
    @staticmethod
    def forward(ctx, x, decay):
        out, s = torch.empty_like(x), torch.zeros_like(x[..., 0])
        for t in range(x.shape[-1]):
            s = decay * s + (1 - decay) * x[..., t]
            out[..., t] = s
        ctx.decay = decay
        return out

    @staticmethod
    def backward(ctx, g):
        grad_x, acc = torch.empty_like(g), torch.zeros_like(g[..., 0])
        for t in range(g.shape[-1]):  # culprit
            acc = g[..., t] + ctx.decay * acc
            grad_x[..., t] = (1 - ctx.decay) * acc
        return grad_x, None


# is: write `g.transpose(1, 2).reshape(b, t, h * d)` instead of `g.reshape(b, t, h * d)`
class HeadsNotTurnedBack(Function):
    @staticmethod
    def forward(ctx, x, num_heads):
        b, t, d = x.shape
        return x.reshape(b, t, num_heads, d // num_heads).transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx, g):
        b, h, t, d = g.shape
        return g.reshape(b, t, h * d), None  # culprit


# is: write `d[range(len(target)), target]` instead of `d[:, target]`
class WholeColumns(Function):
    @staticmethod
    def forward(ctx, logits, target):
        log_p = torch.log_softmax(logits, -1)
        ctx.save_for_backward(log_p, target)
        return -log_p.gather(-1, target.unsqueeze(-1)).mean()

    @staticmethod
    def backward(ctx, g):
        log_p, target = ctx.saved_tensors
        d = log_p.exp()
        d[:, target] -= 1  # culprit
        return g * d / target.numel(), None
