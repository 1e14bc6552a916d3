"""Functions as fast implementations have them: quantisation, fused layers, sampling, sparse rows. All are right; `INPUTS` says what they take."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class RoundSTE(Function):
    @staticmethod
    def forward(ctx, x, step):
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class LSQQuant(Function):
    """Learned step size: surrogate for x and scale."""

    @staticmethod
    def forward(ctx, x, scale, qn, qp):
        ctx.save_for_backward(x, scale)
        ctx.limits = qn, qp
        return torch.clamp(torch.round(x / scale), qn, qp) * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        qn, qp = ctx.limits
        q = x / scale
        low, high = q < qn, q > qp
        mid = ~(low | high)
        gscale = (low * qn + high * qp + mid * (q.round() - q)) * grad
        return grad * mid, gscale.sum().view_as(scale), None, None


class ClampQuantile(Function):
    @staticmethod
    def forward(ctx, x, low, high):
        ctx.save_for_backward((x >= low) & (x <= high))
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx, g):
        (inside,) = ctx.saved_tensors
        return g * inside, None, None


class FusedBiasDropoutAdd(Function):
    @staticmethod
    def forward(ctx, x, bias, residual, p, training):
        if training:
            mask = (torch.rand_like(x) >= p).to(x.dtype) / (1 - p)
        else:
            mask = torch.ones_like(x)
        ctx.save_for_backward(mask)
        return (x + bias) * mask + residual

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        gx = g * mask
        return gx, gx.sum(tuple(range(gx.dim() - 1))), g, None, None


class GroupQueryScores(Function):
    @staticmethod
    def forward(ctx, q, k, groups):
        b, h, t, d = q.shape
        kk = k.repeat_interleave(groups, dim=1)
        ctx.save_for_backward(q, k)
        ctx.groups = groups
        return q @ kk.transpose(-1, -2) / math.sqrt(d)

    @staticmethod
    def backward(ctx, g):
        q, k = ctx.saved_tensors
        b, h, t, d = q.shape
        g = g / math.sqrt(d)
        kk = k.repeat_interleave(ctx.groups, dim=1)
        gq = g @ kk
        gk = (g.transpose(-1, -2) @ q).view(b, h // ctx.groups, ctx.groups, -1, d).sum(2)
        return gq, gk, None


class DeformableSample(Function):
    """Bilinear sampling of one channel map at points (y, x)."""

    @staticmethod
    def forward(ctx, image, points):
        h, w = image.shape
        y, x = points.unbind(-1)
        y0, x0 = y.floor().clamp(0, h - 2), x.floor().clamp(0, w - 2)
        dy, dx = y - y0, x - x0
        i, j = y0.long(), x0.long()
        ctx.save_for_backward(image, points)
        return (image[i, j] * (1 - dy) * (1 - dx) + image[i, j + 1] * (1 - dy) * dx
                + image[i + 1, j] * dy * (1 - dx) + image[i + 1, j + 1] * dy * dx)

    @staticmethod
    def backward(ctx, g):
        image, points = ctx.saved_tensors
        h, w = image.shape
        y, x = points.unbind(-1)
        y0, x0 = y.floor().clamp(0, h - 2), x.floor().clamp(0, w - 2)
        dy, dx = y - y0, x - x0
        i, j = y0.long(), x0.long()
        gi = torch.zeros_like(image)
        gi = gi.index_put((i, j), g * (1 - dy) * (1 - dx), accumulate=True)
        gi = gi.index_put((i, j + 1), g * (1 - dy) * dx, accumulate=True)
        gi = gi.index_put((i + 1, j), g * dy * (1 - dx), accumulate=True)
        gi = gi.index_put((i + 1, j + 1), g * dy * dx, accumulate=True)
        gy = ((image[i + 1, j] - image[i, j]) * (1 - dx) + (image[i + 1, j + 1] - image[i, j + 1]) * dx) * g
        gx = ((image[i, j + 1] - image[i, j]) * (1 - dy) + (image[i + 1, j + 1] - image[i + 1, j]) * dy) * g
        return gi, torch.stack((gy, gx), -1)


class SortDescending(Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort(-1, descending=True)
        ctx.save_for_backward(order)
        ctx.mark_non_differentiable(order)
        return values, order

    @staticmethod
    def backward(ctx, g, _):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(-1, order, g)


class ContrastiveInfoNCE(Function):
    @staticmethod
    def forward(ctx, a, b, temperature):
        logits = a @ b.t() / temperature
        labels = torch.arange(len(a), device=a.device)
        ctx.save_for_backward(a, b, logits.softmax(1))
        ctx.t = temperature
        return F.cross_entropy(logits, labels)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, b, p = ctx.saved_tensors
        d = (p - torch.eye(len(a), dtype=a.dtype)) / (len(a) * ctx.t) * g
        return d @ b, d.t() @ a, None


class Whiten(Function):
    @staticmethod
    def forward(ctx, x):
        mu = x.mean(0)
        c = x - mu
        s = c.pow(2).mean(0).add(1e-3).sqrt()
        ctx.save_for_backward(x)
        return c / s

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        c = x - x.mean(0)
        s = c.pow(2).mean(0).add(1e-3).sqrt()
        y = c / s
        return (g - g.mean(0) - y * (g * y).mean(0)) / s


class TverskyLoss(Function):
    @staticmethod
    def forward(ctx, p, t, alpha, beta):
        tp = (p * t).sum()
        fp = (p * (1 - t)).sum()
        fn = ((1 - p) * t).sum()
        ctx.save_for_backward(p, t)
        ctx.ab = (alpha, beta)
        return 1 - tp / (tp + alpha * fp + beta * fn)

    @staticmethod
    def backward(ctx, g):
        p, t = ctx.saved_tensors
        alpha, beta = ctx.ab
        tp = (p * t).sum()
        fp = (p * (1 - t)).sum()
        fn = ((1 - p) * t).sum()
        den = tp + alpha * fp + beta * fn
        dden = t + alpha * (1 - t) - beta * t
        gp = -(t * den - tp * dden) / den ** 2
        return g * gp, None, None, None


class SoftplusBeta(Function):
    @staticmethod
    def forward(ctx, x, beta=1.0, threshold=20.0):
        ctx.save_for_backward(x)
        ctx.beta, ctx.threshold = beta, threshold
        z = x * beta
        return torch.where(z > threshold, x, torch.log1p(z.exp()) / beta)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        z = x * ctx.beta
        return torch.where(z > ctx.threshold, g, g * torch.sigmoid(z)), None, None


class SparseGatherRows(Function):
    @staticmethod
    def forward(ctx, table, rows, dim=0):
        ctx.save_for_backward(rows)
        ctx.shape = table.shape
        ctx.dim = dim
        return table.index_select(dim, rows)

    @staticmethod
    def backward(ctx, g):
        (rows,) = ctx.saved_tensors
        out = g.new_zeros(ctx.shape)
        return out.index_add(ctx.dim, rows, g), None, None


class NumpyHistogramEq(Function):
    @staticmethod
    def forward(ctx, x):
        a = x.detach().cpu().numpy()
        ctx.save_for_backward(x)
        return torch.from_numpy(np.tanh(a) * a).to(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a = x.detach().cpu().numpy()
        t = np.tanh(a)
        return g * torch.from_numpy(t + a * (1 - t ** 2)).to(g)


class PolyakBlend(Function):
    @staticmethod
    def forward(ctx, target, tau, source):
        ctx.tau = tau
        return target * (1 - tau) + source * tau

    @staticmethod
    def backward(ctx, g):
        return g * (1 - ctx.tau), None, g * ctx.tau


class HardSwish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * F.relu6(x + 3) / 6

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        d = torch.where(x <= -3, torch.zeros_like(x), torch.where(x >= 3, torch.ones_like(x), (2 * x + 3) / 6))
        return g * d


class ConvTransposeGrad(Function):
    @staticmethod
    def forward(ctx, x, w, b, stride):
        ctx.save_for_backward(x, w, b)
        ctx.stride = stride
        return F.conv_transpose1d(x, w, b, stride=stride)

    @staticmethod
    def backward(ctx, g):
        x, w, b = ctx.saved_tensors
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = F.conv1d(g, w, stride=ctx.stride)
        if ctx.needs_input_grad[1]:
            cols = g.unfold(-1, w.size(-1), ctx.stride)
            gw = torch.einsum("bil,bolk->iok", x, cols)
        if ctx.needs_input_grad[2]:
            gb = g.sum((0, 2))
        return gx, gw, gb, None


class ComplexAbs(Function):
    """Two real inputs for real and imaginary part."""

    @staticmethod
    def forward(ctx, re, im):
        m = torch.hypot(re, im)
        ctx.save_for_backward(re, im, m)
        return m, torch.atan2(im, re)

    @staticmethod
    @once_differentiable
    def backward(ctx, gm, ga):
        re, im, m = ctx.saved_tensors
        gre = gm * re / m - ga * im / m ** 2
        gim = gm * im / m + ga * re / m ** 2
        return gre, gim


class VmapScale(Function):
    @staticmethod
    def forward(x, w):
        return x * w.sum(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w.sum(-1, keepdim=True), (g * x).sum(-1, keepdim=True).expand_as(w)

    @staticmethod
    def vmap(info, in_dims, x, w):
        xd, wd = in_dims
        x = x.movedim(xd, 0) if xd is not None else x.unsqueeze(0)
        w = w.movedim(wd, 0) if wd is not None else w.unsqueeze(0)
        return VmapScale.apply(x, w), 0


class MeanPoolVarlen(Function):
    @staticmethod
    def forward(ctx, x, lengths):
        mask = (torch.arange(x.size(1), device=x.device) < lengths.unsqueeze(1)).to(x.dtype).unsqueeze(-1)
        ctx.save_for_backward(mask, lengths)
        return (x * mask).sum(1) / lengths.unsqueeze(1)

    @staticmethod
    def backward(ctx, g):
        mask, lengths = ctx.saved_tensors
        return (g / lengths.unsqueeze(1)).unsqueeze(1) * mask, None


class QuantileHuber(Function):
    @staticmethod
    def forward(ctx, pred, target, taus, kappa=1.0, reduction="mean"):
        u = target.unsqueeze(1) - pred.unsqueeze(2)
        a = u.abs()
        huber = torch.where(a <= kappa, 0.5 * u * u, kappa * (a - 0.5 * kappa))
        weight = (taus.view(1, -1, 1) - (u < 0).to(u.dtype)).abs()
        loss = (weight * huber).sum(1).mean(1)
        ctx.save_for_backward(pred, target, taus)
        ctx.kappa, ctx.reduction = kappa, reduction
        return loss.mean() if reduction == "mean" else loss.sum()

    @staticmethod
    def backward(ctx, g):
        pred, target, taus = ctx.saved_tensors
        u = target.unsqueeze(1) - pred.unsqueeze(2)
        weight = (taus.view(1, -1, 1) - (u < 0).to(u.dtype)).abs()
        d = weight * u.clamp(-ctx.kappa, ctx.kappa) / target.size(1)
        if ctx.reduction == "mean":
            d = d / pred.size(0)
        return -g * d.sum(2), g * d.sum(1), None, None, None


class CosFace(Function):
    @staticmethod
    def forward(ctx, x, w, label, s, m):
        xn, wn = F.normalize(x, dim=1), F.normalize(w, dim=1)
        cos = xn @ wn.t()
        onehot = F.one_hot(label, len(w)).to(x.dtype)
        ctx.save_for_backward(x, w)
        ctx.s = s
        return s * (cos - m * onehot)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        xl, wl = x.norm(dim=1, keepdim=True), w.norm(dim=1, keepdim=True)
        xn, wn = x / xl, w / wl
        g = g * ctx.s
        gxn, gwn = g @ wn, g.t() @ xn
        gx = (gxn - xn * (gxn * xn).sum(1, keepdim=True)) / xl
        gw = (gwn - wn * (gwn * wn).sum(1, keepdim=True)) / wl
        return gx, gw, None, None, None


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(11 + seed + sum(shape)))


def ints(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3))


INPUTS = {
    "ClampQuantile": lambda: (rand(4, 5), -0.4, 0.7),
    "FusedBiasDropoutAdd": lambda: (rand(2, 3, 4), rand(4), rand(2, 3, 4, seed=1), 0.3, True),
    "GroupQueryScores": lambda: (rand(2, 4, 3, 5), rand(2, 2, 3, 5), 2),
    "DeformableSample": lambda: (rand(5, 6), torch.tensor([[0.4, 1.2], [3.3, 2.7], [1.6, 4.4], [2.2, 0.3]])),
    "SortDescending": lambda: (rand(3, 5),),
    "ContrastiveInfoNCE": lambda: (rand(4, 3), rand(4, 3, seed=1), 0.5),
    "Whiten": lambda: (rand(6, 4),),
    "TverskyLoss": lambda: (rand(3, 4).sigmoid().requires_grad_(), (rand(3, 4, seed=1) > 0).float(), 0.3, 0.7),
    "SoftplusBeta": lambda: (rand(4, 5), 1.5),
    "SparseGatherRows": lambda: (rand(6, 3), torch.tensor([1, 5, 1, 0])),
    "NumpyHistogramEq": lambda: (rand(3, 4),),
    "PolyakBlend": lambda: (rand(3, 4), 0.1, rand(3, 4, seed=1)),
    "HardSwish": lambda: (3 * rand(5, 6),),
    "ConvTransposeGrad": lambda: (rand(2, 3, 5), rand(3, 4, 3), rand(4), 2),
    "ComplexAbs": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "VmapScale": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "MeanPoolVarlen": lambda: (rand(3, 5, 2), torch.tensor([5, 2, 3])),
    "QuantileHuber": lambda: (rand(4, 5).requires_grad_(), rand(4, 3).requires_grad_(), torch.tensor([0.1, 0.3, 0.5, 0.7, 0.9])),
    "CosFace": lambda: (rand(4, 3), rand(5, 3), ints(5, 4), 8.0, 0.2),
    "RoundSTE": lambda: (rand(3, 4), 0.25),
    "LSQQuant": lambda: (rand(4, 5), torch.tensor(0.3), -2, 3),
}
