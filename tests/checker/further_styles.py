"""Functions of geometry, survival, flows and vision. All are right; `INPUTS` says what they take."""

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Chamfer(Function):
    @staticmethod
    def forward(ctx, p, q):
        d = (p[:, None] - q[None]).pow(2).sum(-1)
        m1, i1 = d.min(1)
        m2, i2 = d.min(0)
        ctx.save_for_backward(p, q, i1, i2)
        return m1.mean() + m2.mean()

    @staticmethod
    def backward(ctx, g):
        p, q, i1, i2 = ctx.saved_tensors
        d1 = 2 * (p - q[i1]) / len(p) * g
        d2 = 2 * (q - p[i2]) / len(q) * g
        gp = d1.index_add(0, i2, -d2)
        gq = d2.index_add(0, i1, -d1)
        return gp, gq


class Elu(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        y = torch.where(x > 0, x, alpha * (x.exp() - 1))
        ctx.save_for_backward(y)
        ctx.alpha = alpha
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * torch.where(y > 0, torch.ones_like(y), y + ctx.alpha), None


class PixelShuffle(Function):
    @staticmethod
    def forward(ctx, x, r):
        ctx.r = r
        b, c, h, w = x.shape
        return x.view(b, c // r**2, r, r, h, w).permute(0, 1, 4, 2, 5, 3).reshape(b, c // r**2, h * r, w * r)

    @staticmethod
    def backward(ctx, g):
        r = ctx.r
        b, c, h, w = g.shape
        return g.reshape(b, c, h // r, r, w // r, r).permute(0, 1, 3, 5, 2, 4).reshape(b, c * r**2, h // r, w // r), None


class NearestUp(Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x.repeat_interleave(s, -1).repeat_interleave(s, -2)

    @staticmethod
    def backward(ctx, g):
        s = ctx.s
        h, w = g.shape[-2:]
        return g.reshape(*g.shape[:-2], h // s, s, w // s, s).sum((-1, -3)), None


class CoxLoss(Function):
    @staticmethod
    def forward(ctx, risk, event):
        lse = torch.logcumsumexp(risk.flip(0), 0).flip(0)
        ctx.save_for_backward(risk, event, lse)
        return -((risk - lse) * event).sum() / event.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        risk, event, lse = ctx.saved_tensors
        w = (event * (-lse).exp()).cumsum(0)
        return g * (risk.exp() * w - event) / event.sum(), None


class PlanarFlow(Function):
    @staticmethod
    def forward(ctx, z, u, w, b):
        a = z @ w + b
        t = a.tanh()
        ctx.save_for_backward(z, u, w, b)
        out = z + t.unsqueeze(-1) * u
        det = torch.log((1 + (1 - t * t) * (w @ u)).abs())
        return out, det

    @staticmethod
    @once_differentiable
    def backward(ctx, go, gd):
        z, u, w, b = ctx.saved_tensors
        t = (z @ w + b).tanh()
        h = 1 - t * t
        s = w @ u
        inner = 1 + h * s
        gt = (go * u).sum(-1) - gd * 2 * t * s / inner
        ga = gt * h
        gs = (gd * h / inner).sum()
        gz = go + ga.unsqueeze(-1) * w
        gu = (go * t.unsqueeze(-1)).sum(0) + gs * w
        gw = ga @ z + gs * u
        return gz, gu, gw, ga.sum().reshape(b.shape)


class GaussianKL(Function):
    @staticmethod
    def forward(ctx, mu, logvar, beta):
        ctx.save_for_backward(mu, logvar)
        ctx.beta = beta
        return -0.5 * beta * (1 + logvar - mu ** 2 - logvar.exp()).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        mu, logvar = ctx.saved_tensors
        k = g * ctx.beta / len(mu)
        return k * mu, 0.5 * k * (logvar.exp() - 1), None


class QuatMul(Function):
    @staticmethod
    def forward(ctx, p, q):
        ctx.save_for_backward(p, q)
        a, b, c, d = p.unbind(-1)
        e, f, g, h = q.unbind(-1)
        return torch.stack((a*e - b*f - c*g - d*h, a*f + b*e + c*h - d*g, a*g - b*h + c*e + d*f, a*h + b*g - c*f + d*e), -1)

    @staticmethod
    def backward(ctx, o):
        p, q = ctx.saved_tensors
        a, b, c, d = p.unbind(-1)
        e, f, g, h = q.unbind(-1)
        w, x, y, z = o.unbind(-1)
        gp = torch.stack((w*e + x*f + y*g + z*h, -w*f + x*e - y*h + z*g, -w*g + x*h + y*e - z*f, -w*h - x*g + y*f + z*e), -1)
        gq = torch.stack((w*a + x*b + y*c + z*d, -w*b + x*a + y*d - z*c, -w*c - x*d + y*a + z*b, -w*d + x*c - y*b + z*a), -1)
        return gp, gq


class SoftHistogram(Function):
    @staticmethod
    def forward(ctx, x, centers, bandwidth):
        d = (x.unsqueeze(-1) - centers) / bandwidth
        k = torch.exp(-0.5 * d * d)
        ctx.save_for_backward(x, centers)
        ctx.h = bandwidth
        return k.mean(-2)

    @staticmethod
    def backward(ctx, g):
        x, centers = ctx.saved_tensors
        d = (x.unsqueeze(-1) - centers) / ctx.h
        k = torch.exp(-0.5 * d * d)
        inner = g.unsqueeze(-2) * k * d / ctx.h / x.size(-1)
        return -inner.sum(-1), inner.flatten(0, -2).sum(0), None


class RankHinge(Function):
    @staticmethod
    def forward(ctx, s, y, margin):
        diff = margin - (s[:, None] - s[None])
        active = (y[:, None] > y[None]) & (diff > 0)
        n = (y[:, None] > y[None]).sum().clamp(min=1)
        ctx.save_for_backward(active, n)
        return (diff * active).sum() / n

    @staticmethod
    def backward(ctx, g):
        active, n = ctx.saved_tensors
        a = active.to(g.dtype)
        return g * (a.sum(0) - a.sum(1)) / n, None, None


class Wasserstein1D(Function):
    @staticmethod
    def forward(ctx, x, y):
        xs, ix = x.sort()
        ys, iy = y.sort()
        ctx.save_for_backward(xs - ys, ix, iy)
        return (xs - ys).abs().mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        d, ix, iy = ctx.saved_tensors
        s = g * d.sign() / d.numel()
        gx = torch.empty_like(s).scatter(0, ix, s)
        gy = torch.empty_like(s).scatter(0, iy, -s)
        return gx, gy


class TwoLayer(Function):
    @staticmethod
    def forward(ctx, x, w1, b1, w2, b2):
        h = torch.relu(x @ w1 + b1)
        ctx.save_for_backward(x, w1, b1, w2)
        return h @ w2 + b2

    @staticmethod
    def backward(ctx, g):
        x, w1, b1, w2 = ctx.saved_tensors
        pre = x @ w1 + b1
        h = pre.clamp(min=0)
        gh = (g @ w2.t()) * (pre > 0)
        return gh @ w1.t(), x.t() @ gh, gh.sum(0), h.t() @ g, g.sum(0)


class LogCoshLoss(Function):
    @staticmethod
    def forward(ctx, pred, target, reduction="mean"):
        d = pred - target
        loss = d + F.softplus(-2 * d) - math.log(2)
        ctx.save_for_backward(pred, target)
        ctx.reduction = reduction
        return loss.mean() if reduction == "mean" else loss

    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        d = torch.tanh(pred - target) * g
        if ctx.reduction == "mean":
            d = d / pred.numel()
        return d, -d, None


class PoincareDist(Function):
    @staticmethod
    def forward(ctx, u, v):
        a = 1 - (u * u).sum(-1)
        b = 1 - (v * v).sum(-1)
        n = (u - v).pow(2).sum(-1)
        c = 1 + 2 * n / (a * b)
        ctx.save_for_backward(u, v)
        return torch.acosh(c)

    @staticmethod
    def backward(ctx, g):
        u, v = ctx.saved_tensors
        a = 1 - (u * u).sum(-1)
        b = 1 - (v * v).sum(-1)
        n = (u - v).pow(2).sum(-1)
        c = 1 + 2 * n / (a * b)
        k = (g / (c * c - 1).sqrt()).unsqueeze(-1)
        a, b, n = a.unsqueeze(-1), b.unsqueeze(-1), n.unsqueeze(-1)
        gu = k * (4 * (u - v) / (a * b) + 4 * n * u / (a * a * b))
        gv = k * (4 * (v - u) / (a * b) + 4 * n * v / (a * b * b))
        return gu, gv


class MaskedMSE(Function):
    @staticmethod
    def forward(ctx, pred, target, mask):
        m = mask.to(pred.dtype)
        ctx.save_for_backward(pred, target, m)
        return ((pred - target) ** 2 * m).sum() / m.sum()

    @staticmethod
    def backward(ctx, g):
        pred, target, m = ctx.saved_tensors
        d = 2 * g * (pred - target) * m / m.sum()
        return d, -d, None


class DropPath(Function):
    @staticmethod
    def forward(ctx, x, keep):
        mask = torch.bernoulli(torch.full((x.size(0),) + (1,) * (x.dim() - 1), keep, dtype=x.dtype))
        ctx.save_for_backward(mask)
        ctx.keep = keep
        return x * mask / keep

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask / ctx.keep, None


class GatherLast(Function):
    @staticmethod
    def forward(ctx, x, lengths):
        idx = (lengths - 1).view(-1, 1, 1).expand(-1, 1, x.size(2))
        ctx.save_for_backward(idx)
        ctx.shape = x.shape
        return x.gather(1, idx).squeeze(1)

    @staticmethod
    def backward(ctx, g):
        (idx,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).scatter(1, idx, g.unsqueeze(1)), None


class InstanceNorm(Function):
    @staticmethod
    def forward(ctx, x, gamma, eps=1e-5):
        mu = x.mean((2, 3), keepdim=True)
        var = x.var((2, 3), unbiased=False, keepdim=True)
        ctx.save_for_backward(x, gamma)
        ctx.eps = eps
        return (x - mu) / (var + eps).sqrt() * gamma.view(1, -1, 1, 1)

    @staticmethod
    def backward(ctx, g):
        x, gamma = ctx.saved_tensors
        mu = x.mean((2, 3), keepdim=True)
        inv = (x.var((2, 3), unbiased=False, keepdim=True) + ctx.eps).rsqrt()
        y = (x - mu) * inv
        gg = (g * y).sum((0, 2, 3))
        gy = g * gamma.view(1, -1, 1, 1)
        gx = inv * (gy - gy.mean((2, 3), keepdim=True) - y * (gy * y).mean((2, 3), keepdim=True))
        return gx, gg, None


class TopPMask(Function):
    @staticmethod
    def forward(ctx, probs, p):
        s, i = probs.sort(-1, descending=True)
        keep_sorted = s.cumsum(-1) - s < p
        keep = torch.zeros_like(keep_sorted).scatter(-1, i, keep_sorted)
        kept = probs * keep
        z = kept.sum(-1, keepdim=True)
        ctx.save_for_backward(kept / z, keep, z)
        return kept / z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        y, keep, z = ctx.saved_tensors
        return (g - (g * y).sum(-1, keepdim=True)) * keep / z, None


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(21 + seed + sum(shape)))


INPUTS = {
    "Chamfer": lambda: (rand(5, 3), rand(4, 3)),
    "Elu": lambda: (rand(4, 5), 1.3),
    "PixelShuffle": lambda: (rand(2, 8, 3, 5), 2),
    "NearestUp": lambda: (rand(2, 3, 4, 5), 2),
    "CoxLoss": lambda: (rand(6).requires_grad_(), torch.tensor([1.0, 0, 1, 1, 0, 1])),
    "PlanarFlow": lambda: (rand(5, 3), rand(3), rand(3, seed=1), rand(1)),
    "GaussianKL": lambda: (rand(4, 3), rand(4, 3, seed=1), 0.7),
    "QuatMul": lambda: (rand(5, 4), rand(5, 4, seed=1)),
    "SoftHistogram": lambda: (rand(2, 6), rand(5), 0.4),
    "RankHinge": lambda: (rand(6), torch.tensor([2, 0, 1, 1, 3, 0]), 0.5),
    "Wasserstein1D": lambda: (rand(7), rand(7, seed=1)),
    "TwoLayer": lambda: (rand(4, 3), rand(3, 6), rand(6), rand(6, 2), rand(2)),
    "LogCoshLoss": lambda: (rand(4, 5), rand(4, 5, seed=1)),
    "PoincareDist": lambda: (0.3 * rand(4, 3), 0.3 * rand(4, 3, seed=1)),
    "MaskedMSE": lambda: (rand(4, 5), rand(4, 5, seed=1), rand(4, 5, seed=2) > 0),
    "DropPath": lambda: (rand(6, 3, 2), 0.7),
    "GatherLast": lambda: (rand(3, 5, 2), torch.tensor([2, 5, 1])),
    "InstanceNorm": lambda: (rand(2, 3, 4, 5), rand(3)),
    "TopPMask": lambda: (rand(3, 6).softmax(-1), 0.8),
}
