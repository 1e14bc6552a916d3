"""Right Functions in the styles people write them: cells, losses, norms, lookups, NumPy, sparse gradients, varargs.

Each is used as it is and, by `SLIPS`, with one slip.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class LSTMCell(Function):
    @staticmethod
    def forward(ctx, x, h, c, w_ih, w_hh, b):
        gates = x @ w_ih.t() + h @ w_hh.t() + b
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c_new = f * c + i * g
        h_new = o * torch.tanh(c_new)
        ctx.save_for_backward(x, h, c, w_ih, w_hh, i, f, g, o, c_new)
        return h_new, c_new

    @staticmethod
    @once_differentiable
    def backward(ctx, dh, dc):
        x, h, c, w_ih, w_hh, i, f, g, o, c_new = ctx.saved_tensors
        t = torch.tanh(c_new)
        do = dh * t
        dct = dc + dh * o * (1 - t * t)
        di = dct * g
        df = dct * c
        dg = dct * i
        dc_prev = dct * f
        dgates = torch.cat([di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), do * o * (1 - o)], 1)
        return dgates @ w_ih, dgates @ w_hh, dc_prev, dgates.t() @ x, dgates.t() @ h, dgates.sum(0)


class GRUStep(Function):
    @staticmethod
    def forward(x, h, wx, wh):
        gx, gh = x @ wx, h @ wh
        xr, xz, xn = gx.chunk(3, -1)
        hr, hz, hn = gh.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        return (1 - z) * n + z * h

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        x, h, wx, wh = ctx.saved_tensors
        gx, gh = x @ wx, h @ wh
        xr, xz, xn = gx.chunk(3, -1)
        hr, hz, hn = gh.chunk(3, -1)
        r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
        n = torch.tanh(xn + r * hn)
        dz = grad * (h - n)
        dn = grad * (1 - z) * (1 - n * n)
        dr = dn * hn
        dzp = dz * z * (1 - z)
        drp = dr * r * (1 - r)
        dgx = torch.cat((drp, dzp, dn), -1)
        dgh = torch.cat((drp, dzp, dn * r), -1)
        dx = dgx @ wx.t()
        dh = dgh @ wh.t() + grad * z
        return dx, dh, x.t() @ dgx, h.t() @ dgh


class FocalLoss(Function):
    @staticmethod
    def forward(ctx, logits, target, gamma=2.0, reduction="mean"):
        logp = F.log_softmax(logits, dim=-1)
        logpt = logp.gather(1, target.unsqueeze(1)).squeeze(1)
        pt = logpt.exp()
        loss = -((1 - pt) ** gamma) * logpt
        ctx.save_for_backward(logits, target)
        ctx.gamma, ctx.reduction = gamma, reduction
        return loss.mean() if reduction == "mean" else loss.sum()

    @staticmethod
    def backward(ctx, grad_output):
        logits, target = ctx.saved_tensors
        gamma = ctx.gamma
        p = logits.softmax(-1)
        pt = p.gather(1, target.unsqueeze(1))
        onehot = torch.zeros_like(p).scatter(1, target.unsqueeze(1), 1.0)
        dldpt = gamma * (1 - pt) ** (gamma - 1) * pt.log() - (1 - pt) ** gamma / pt
        grad = dldpt * pt * (onehot - p)
        if ctx.reduction == "mean":
            grad = grad / logits.shape[0]
        return grad_output * grad, None, None, None


class RMSNorm(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        inv = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return x * inv * weight

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        inv = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + ctx.eps)
        n = x.shape[-1]
        dw = (dy * x * inv).reshape(-1, n).sum(0)
        g = dy * w
        dx = inv * g - x * inv.pow(3) / n * (g * x).sum(-1, keepdim=True)
        return dx, dw, None


class GroupNormFn(Function):
    @staticmethod
    def forward(ctx, x, groups, weight, bias, eps=1e-5):
        b, c = x.shape[:2]
        v = x.reshape(b, groups, -1)
        mean = v.mean(-1, keepdim=True)
        var = v.var(-1, unbiased=False, keepdim=True)
        xhat = ((v - mean) / (var + eps).sqrt()).reshape(x.shape)
        ctx.save_for_backward(x, weight)
        ctx.groups, ctx.eps = groups, eps
        return xhat * weight.view(1, c, *[1] * (x.dim() - 2)) + bias.view(1, c, *[1] * (x.dim() - 2))

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        b, c = x.shape[:2]
        v = x.reshape(b, ctx.groups, -1)
        mean = v.mean(-1, keepdim=True)
        std = (v.var(-1, unbiased=False, keepdim=True) + ctx.eps).sqrt()
        xhat = (v - mean) / std
        dims = [0] + list(range(2, x.dim()))
        dweight = (dy * xhat.reshape(x.shape)).sum(dims)
        dbias = dy.sum(dims)
        g = (dy * weight.view(1, c, *[1] * (x.dim() - 2))).reshape(v.shape)
        dx = (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True)) / std
        return dx.reshape(x.shape), None, dweight, dbias, None


class SegmentMean(Function):
    @staticmethod
    def forward(ctx, values, index, num):
        count = torch.bincount(index, minlength=num).clamp(min=1).to(values.dtype)
        ctx.save_for_backward(index, count)
        out = values.new_zeros(num, values.shape[1]).index_add_(0, index, values)
        return out / count.unsqueeze(1)

    @staticmethod
    def backward(ctx, grad):
        index, count = ctx.saved_tensors
        return (grad / count.unsqueeze(1))[index], None, None


class FakeQuantLSQ(Function):
    """Learned step size: x gets a straight-through gradient within range; s a real formula."""

    @staticmethod
    def forward(ctx, x, lo, hi):
        ctx.save_for_backward(x)
        ctx.range = (lo, hi)
        return x.clamp(lo, hi) * x.abs().sqrt()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        lo, hi = ctx.range
        inside = ((x >= lo) & (x <= hi)).to(grad.dtype)
        root = x.abs().sqrt()
        return grad * (inside * root + x.clamp(lo, hi) * x.sign() / (2 * root)), None, None


class Conv1dUnfold(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None, stride=1):
        k = weight.shape[-1]
        cols = x.unfold(2, k, stride)                      # B C L k
        out = torch.einsum("bclk,ock->bol", cols, weight)
        if bias is not None:
            out = out + bias[None, :, None]
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.has_bias = stride, bias is not None
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        k, s = weight.shape[-1], ctx.stride
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = torch.zeros_like(x)
            for j in range(k):
                dx[:, :, j : j + s * (grad.shape[2] - 1) + 1 : s] += torch.einsum("bol,oc->bcl", grad, weight[:, :, j])
        if ctx.needs_input_grad[1]:
            dw = torch.einsum("bol,bclk->ock", grad, x.unfold(2, k, s))
        if ctx.has_bias and ctx.needs_input_grad[2]:
            db = grad.sum((0, 2))
        return dx, dw, db, None


class AvgPool(Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.shape, ctx.k = x.shape, k
        b, c, h, w = x.shape
        return x[:, :, : h // k * k, : w // k * k].reshape(b, c, h // k, k, w // k, k).mean((3, 5))

    @staticmethod
    def backward(ctx, g):
        b, c, h, w = ctx.shape
        k = ctx.k
        out = g.new_zeros(ctx.shape)
        out[:, :, : h // k * k, : w // k * k] = g.repeat_interleave(k, 2).repeat_interleave(k, 3) / (k * k)
        return out, None


class NormalizeL2(Function):
    @staticmethod
    def forward(ctx, x, dim=-1, eps=1e-12):
        n = x.norm(dim=dim, keepdim=True).clamp_min(eps)
        y = x / n
        ctx.save_for_backward(y, n)
        ctx.dim = dim
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        y, n = ctx.saved_tensors
        return (g - y * (g * y).sum(ctx.dim, keepdim=True)) / n, None, None


class SoftmaxCE(Function):
    """ignore_index, label smoothing"""

    @staticmethod
    def forward(ctx, logits, target, smoothing, ignore_index=-100):
        valid = target != ignore_index
        n = valid.sum().clamp(min=1)
        safe = target.masked_fill(~valid, 0)
        logp = logits.log_softmax(-1)
        c = logits.shape[-1]
        nll = -logp.gather(1, safe[:, None]).squeeze(1)
        smooth = -logp.mean(-1)
        loss = (1 - smoothing) * nll + smoothing * smooth
        ctx.save_for_backward(logits, safe, valid)
        ctx.smoothing = smoothing
        ctx.n = n
        return (loss * valid).sum() / n

    @staticmethod
    def backward(ctx, g):
        logits, safe, valid = ctx.saved_tensors
        c = logits.shape[-1]
        p = logits.softmax(-1)
        q = torch.full_like(p, ctx.smoothing / c)
        q = q.scatter_add(1, safe[:, None], torch.full_like(p[:, :1], 1 - ctx.smoothing))
        grad = (p - q) * valid[:, None] / ctx.n
        return g * grad, None, None, None


class Mish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * F.softplus(x).tanh()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        sp = F.softplus(x)
        t = sp.tanh()
        s = x.sigmoid()
        return g * (t + x * s * (1 - t * t))


class SwiGLU(Function):
    @staticmethod
    def forward(ctx, x, w, v):
        a, b = x @ w, x @ v
        ctx.save_for_backward(x, w, v)
        return F.silu(a) * b

    @staticmethod
    def backward(ctx, g):
        x, w, v = ctx.saved_tensors
        a, b = x @ w, x @ v
        s = torch.sigmoid(a)
        da = g * b * (s + a * s * (1 - s))
        db = g * a * s
        dx = da @ w.t() + db @ v.t()
        flat = x.reshape(-1, x.shape[-1])
        dw = flat.t() @ da.reshape(-1, da.shape[-1])
        dv = flat.t() @ db.reshape(-1, db.shape[-1])
        return dx, dw, dv


class Rotary(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        x1, x2 = x.chunk(2, -1)
        ctx.save_for_backward(cos, sin)
        return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)

    @staticmethod
    def backward(ctx, g):
        cos, sin = ctx.saved_tensors
        g1, g2 = g.chunk(2, -1)
        return torch.cat((g1 * cos + g2 * sin, g2 * cos - g1 * sin), -1), None, None


class MaskedMean(Function):
    @staticmethod
    def forward(ctx, x, mask):
        m = mask.unsqueeze(-1).to(x.dtype)
        count = m.sum(1).clamp(min=1)
        ctx.save_for_backward(m, count)
        return (x * m).sum(1) / count

    @staticmethod
    def backward(ctx, g):
        m, count = ctx.saved_tensors
        return (g / count).unsqueeze(1) * m, None


class PairwiseDist(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(-1)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        d = 2 * (a.unsqueeze(1) - b.unsqueeze(0)) * g.unsqueeze(-1)
        return d.sum(1), -d.sum(0)


class TopKGate(Function):
    @staticmethod
    def forward(ctx, scores, k):
        vals, idx = scores.topk(k, dim=-1)
        ctx.save_for_backward(idx)
        ctx.shape = scores.shape
        ctx.mark_non_differentiable(idx)
        return vals, idx

    @staticmethod
    def backward(ctx, gv, gi):
        (idx,) = ctx.saved_tensors
        return torch.zeros(ctx.shape, dtype=gv.dtype, device=gv.device).scatter(-1, idx, gv), None


class Split3(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.sin(), x.cos(), x.exp()

    @staticmethod
    def backward(ctx, gs, gc, ge):
        (x,) = ctx.saved_tensors
        total = None
        for g, d in ((gs, x.cos()), (gc, -x.sin()), (ge, x.exp())):
            if g is not None:
                total = g * d if total is None else total + g * d
        return total


class BoxIoU(Function):
    @staticmethod
    def forward(ctx, a, b):
        lo = torch.maximum(a[:, :2], b[:, :2])
        hi = torch.minimum(a[:, 2:], b[:, 2:])
        wh = (hi - lo).clamp(min=0)
        inter = wh.prod(1)
        ctx.save_for_backward(a, b)
        return inter

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        lo = torch.maximum(a[:, :2], b[:, :2])
        hi = torch.minimum(a[:, 2:], b[:, 2:])
        wh = hi - lo
        pos = (wh > 0).all(1, keepdim=True).to(a.dtype)
        dwh = wh.flip(1) * g[:, None] * pos
        la = (a[:, :2] > b[:, :2]).to(a.dtype)
        ha = (a[:, 2:] < b[:, 2:]).to(a.dtype)
        da = torch.cat((-dwh * la, dwh * ha), 1)
        db = torch.cat((-dwh * (1 - la), dwh * (1 - ha)), 1)
        return da, db


class LogMatmulExp(Function):
    @staticmethod
    def forward(ctx, a, b):
        s = a.unsqueeze(2) + b.unsqueeze(0)
        out = s.logsumexp(1)
        ctx.save_for_backward(a, b, out)
        return out

    @staticmethod
    def backward(ctx, g):
        a, b, out = ctx.saved_tensors
        p = (a.unsqueeze(2) + b.unsqueeze(0) - out.unsqueeze(1)).exp()
        w = p * g.unsqueeze(1)
        return w.sum(2), w.sum(0)


class PReLU(Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.save_for_backward(x, a)
        shape = [1, -1] + [1] * (x.dim() - 2)
        return torch.where(x >= 0, x, a.view(shape) * x)

    @staticmethod
    def backward(ctx, g):
        x, a = ctx.saved_tensors
        shape = [1, -1] + [1] * (x.dim() - 2)
        neg = x < 0
        gx = torch.where(neg, a.view(shape) * g, g)
        ga = (g * x * neg).sum([d for d in range(x.dim()) if d != 1])
        return gx, ga


class SpectralScale(Function):
    """kwargs-like default in the middle, None input allowed"""

    @staticmethod
    def forward(ctx, x, scale=None, power=2):
        y = x ** power
        ctx.has = scale is not None
        ctx.power = power
        if scale is not None:
            ctx.save_for_backward(x, scale)
            return y * scale
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, g):
        if ctx.has:
            x, scale = ctx.saved_tensors
            return g * ctx.power * x ** (ctx.power - 1) * scale, g * x ** ctx.power, None
        (x,) = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1), None, None


class DotProductSim(Function):
    @staticmethod
    def forward(ctx, q, k, temperature):
        ctx.save_for_backward(q, k)
        ctx.t = temperature
        return torch.einsum("bid,bjd->bij", q, k) / temperature

    @staticmethod
    def backward(ctx, g):
        q, k = ctx.saved_tensors
        g = g / ctx.t
        return torch.einsum("bij,bjd->bid", g, k), torch.einsum("bij,bid->bjd", g, q), None


class CumProd(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.cumprod(-1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        gy = g * y
        rev = gy.flip(-1).cumsum(-1).flip(-1)
        return rev / x


class Huber(Function):
    @staticmethod
    def forward(ctx, pred, target, delta=1.0):
        d = pred - target
        a = d.abs()
        ctx.save_for_backward(d)
        ctx.delta = delta
        ctx.n = d.numel()
        return torch.where(a <= delta, 0.5 * d * d, delta * (a - 0.5 * delta)).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (d,) = ctx.saved_tensors
        grad = g * d.clamp(-ctx.delta, ctx.delta) / ctx.n
        return grad, -grad, None


class KLDiv(Function):
    @staticmethod
    def forward(ctx, logp, logq):
        ctx.save_for_backward(logp, logq)
        return (logp.exp() * (logp - logq)).sum(-1).mean()

    @staticmethod
    def backward(ctx, g):
        logp, logq = ctx.saved_tensors
        n = logp.numel() // logp.shape[-1]
        p = logp.exp()
        return g * p * (logp - logq + 1) / n, -g * p / n


class GumbelSoft(Function):
    @staticmethod
    def forward(ctx, logits, tau):
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        y = ((logits - (-u.log()).log()) / tau).softmax(-1)
        ctx.save_for_backward(y)
        ctx.tau = tau
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return (g - (g * y).sum(-1, keepdim=True)) * y / ctx.tau, None


class NumpySinc(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a = x.detach().cpu().numpy()
        return torch.from_numpy(np.sin(a) * np.exp(-a * a)).to(x.device)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        a = x.detach().cpu().numpy()
        d = (np.cos(a) - 2 * a * np.sin(a)) * np.exp(-a * a)
        return g * torch.from_numpy(d).to(g)


class BatchNormTrain(Function):
    @staticmethod
    def forward(ctx, x, weight, bias, running_mean, running_var, momentum, eps):
        mean = x.mean(0)
        var = x.var(0, unbiased=False)
        n = x.shape[0]
        with torch.no_grad():
            running_mean.mul_(1 - momentum).add_(momentum * mean)
            running_var.mul_(1 - momentum).add_(momentum * var * n / max(n - 1, 1))
        inv = (var + eps).rsqrt()
        xhat = (x - mean) * inv
        ctx.save_for_backward(xhat, inv, weight)
        return xhat * weight + bias

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        xhat, inv, weight = ctx.saved_tensors
        n = g.shape[0]
        db = g.sum(0)
        dw = (g * xhat).sum(0)
        dx = weight * inv * (g - db / n - xhat * dw / n)
        return dx, dw, db, None, None, None, None


class SparseEmbedding(Function):
    @staticmethod
    def forward(ctx, weight, idx):
        ctx.save_for_backward(idx)
        ctx.shape = weight.shape
        return weight[idx]

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (idx,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(idx.reshape(1, -1), g.reshape(-1, ctx.shape[1]), ctx.shape), None


class ReluInplace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.clamp_(min=0)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * (y > 0)


class Base(Function):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.derivative(x)


class Derived(Base):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.derivative = torch.cos
        return torch.sin(x)


class MultiHead(Function):
    """varargs after an int, optional None tensors saved"""

    @staticmethod
    def forward(ctx, n, bias, *xs):
        ctx.n = n
        ctx.save_for_backward(bias, *xs)
        out = sum(x * (i + 1) for i, x in enumerate(xs))
        return out if bias is None else out + bias

    @staticmethod
    def backward(ctx, g):
        bias, *xs = ctx.saved_tensors
        db = None if bias is None else g.sum(0)
        return (None, db, *[g * (i + 1) for i in range(len(xs))])


class FFTFilter(Function):
    @staticmethod
    def forward(ctx, x, h):
        X = torch.fft.rfft(x, dim=-1)
        ctx.save_for_backward(x, h)
        return torch.fft.irfft(X * h, n=x.shape[-1], dim=-1)

    @staticmethod
    def backward(ctx, g):
        x, h = ctx.saved_tensors
        n = x.shape[-1]
        G = torch.fft.rfft(g, dim=-1)
        dx = torch.fft.irfft(G * h, n=n, dim=-1)
        X = torch.fft.rfft(x, dim=-1)
        w = torch.full((n // 2 + 1,), 2.0, dtype=g.dtype)
        w[0] = 1
        if n % 2 == 0:
            w[-1] = 1
        dh = ((X.conj() * G).real * w / n).reshape(-1, n // 2 + 1).sum(0)
        return dx, dh


class SafeNorm(Function):
    @staticmethod
    def forward(ctx, x):
        n = x.norm(dim=-1)
        ctx.save_for_backward(x, n)
        return n

    @staticmethod
    def backward(ctx, g):
        x, n = ctx.saved_tensors
        safe = torch.where(n > 0, n, torch.ones_like(n))
        return (g / safe).unsqueeze(-1) * x


class Median(Function):
    @staticmethod
    def forward(ctx, x):
        v, i = x.median(-1)
        ctx.save_for_backward(i)
        ctx.shape = x.shape
        return v

    @staticmethod
    def backward(ctx, g):
        (i,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).scatter(-1, i.unsqueeze(-1), g.unsqueeze(-1))


class SortFn(Function):
    @staticmethod
    def forward(ctx, x, descending=False):
        v, i = x.sort(-1, descending=descending)
        ctx.save_for_backward(i)
        ctx.mark_non_differentiable(i)
        return v, i

    @staticmethod
    def backward(ctx, gv, _):
        (i,) = ctx.saved_tensors
        return torch.zeros_like(gv).scatter(-1, i, gv), None


class CTCish(Function):
    """DP over time"""

    @staticmethod
    def forward(ctx, emit, trans):
        alpha = [emit[0]]
        for t in range(1, emit.shape[0]):
            alpha.append(torch.logsumexp(alpha[-1].unsqueeze(1) + trans, 0) + emit[t])
        z = torch.logsumexp(alpha[-1], 0)
        ctx.save_for_backward(emit, trans, torch.stack(alpha), z)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        emit, trans, alpha, z = ctx.saved_tensors
        T = emit.shape[0]
        beta = torch.zeros_like(alpha)
        de, dt = torch.zeros_like(emit), torch.zeros_like(trans)
        for t in range(T - 2, -1, -1):
            beta[t] = torch.logsumexp(trans + (emit[t + 1] + beta[t + 1]).unsqueeze(0), 1)
            dt += (alpha[t].unsqueeze(1) + trans + (emit[t + 1] + beta[t + 1]).unsqueeze(0) - z).exp()
        de = (alpha + beta - z).exp()
        return g * de, g * dt


class Outer(Function):
    """calls another Function; a jvp; generate_vmap_rule"""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x * y.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y = inputs
        ctx.save_for_backward(x, y)
        ctx.save_for_forward(x, y)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y.sin(), g * x * y.cos()

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return tx * y.sin() + x * y.cos() * ty


class CastsToFloat(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x.float() @ w.float()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.float()
        return (g @ w.float().t()).to(x.dtype), (x.float().t() @ g).to(w.dtype)


class NonTensorOut(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp(), x.shape[0], None

    @staticmethod
    def backward(ctx, g, *_):
        (x,) = ctx.saved_tensors
        return g * x.exp()


class LowRank(Function):
    @staticmethod
    def forward(ctx, x, a, b, alpha=16, r=None):
        r = a.shape[0] if r is None else r
        ctx.scale = alpha / r
        ctx.save_for_backward(x, a, b)
        return F.linear(F.linear(x, a), b) * ctx.scale

    @staticmethod
    def backward(ctx, g):
        x, a, b = ctx.saved_tensors
        g = g * ctx.scale
        gh = g @ b
        x2, g2, gh2 = x.flatten(0, -2), g.flatten(0, -2), gh.flatten(0, -2)
        return gh @ a, gh2.t() @ x2, g2.t() @ (x2 @ a.t()), None, None


class Grouped(Function):
    """nested meta on ctx, list input"""

    @staticmethod
    def forward(ctx, x, sizes):
        parts = x.split(sizes, 0)
        ctx.meta = {"sizes": (tuple(sizes), len(sizes))}
        out = torch.stack([p.mean(0) for p in parts])
        return out

    @staticmethod
    def backward(ctx, g):
        sizes, n = ctx.meta["sizes"]
        return torch.cat([(g[i] / s).expand(s, *g.shape[1:]) for i, s in enumerate(sizes)]), None


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(100 + seed + sum(shape)))


def labels(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(0))


INPUTS = {
    "LSTMCell": lambda: (rand(2, 3), rand(2, 4), rand(2, 4, seed=1), rand(16, 3), rand(16, 4), rand(16)),
    "GRUStep": lambda: (rand(2, 3), rand(2, 4), rand(3, 12), rand(4, 12)),
    "FocalLoss": lambda: (rand(5, 4), labels(4, 5)),
    "RMSNorm": lambda: (rand(2, 3, 6), rand(6), 1e-5),
    "GroupNormFn": lambda: (rand(2, 4, 3, 5), 2, rand(4), rand(4, seed=3)),
    "SegmentMean": lambda: (rand(7, 3), torch.tensor([0, 0, 2, 1, 2, 2, 4]), 5),
    "FakeQuantLSQ": lambda: (rand(3, 5), -0.7, 0.9),
    "Conv1dUnfold": lambda: (rand(2, 3, 9), rand(4, 3, 3), rand(4), 2),
    "AvgPool": lambda: (rand(2, 3, 5, 6), 2),
    "NormalizeL2": lambda: (rand(3, 5),),
    "SoftmaxCE": lambda: (rand(6, 5), torch.tensor([0, 4, -100, 2, 1, -100]), 0.1),
    "Mish": lambda: (rand(3, 4),),
    "SwiGLU": lambda: (rand(2, 3, 4), rand(4, 5), rand(4, 5, seed=2)),
    "Rotary": lambda: (rand(2, 3, 8).requires_grad_(), rand(3, 4).cos(), rand(3, 4).sin()),
    "MaskedMean": lambda: (rand(2, 5, 3), torch.tensor([[1, 1, 0, 0, 1], [1, 0, 0, 0, 0]]).bool()),
    "PairwiseDist": lambda: (rand(4, 3), rand(5, 3)),
    "TopKGate": lambda: (rand(3, 6), 2),
    "Split3": lambda: (rand(3, 4),),
    "BoxIoU": lambda: (torch.tensor([[0.1, 0.2, 1.3, 1.7], [0.0, 0.0, 1.0, 2.0], [3.0, 3.0, 4.0, 4.5]]), torch.tensor([[0.5, 0.1, 1.9, 1.1], [0.3, 0.4, 0.8, 2.5], [0.0, 0.0, 1.0, 1.0]])),
    "LogMatmulExp": lambda: (rand(3, 4), rand(4, 5)),
    "PReLU": lambda: (rand(2, 3, 5), rand(3).abs()),
    "SpectralScale": lambda: (rand(3, 4), rand(4), 3),
    "DotProductSim": lambda: (rand(2, 3, 4), rand(2, 5, 4), 0.7),
    "CumProd": lambda: (rand(3, 4),),
    "Huber": lambda: (rand(4, 5), rand(4, 5, seed=2), 0.8),
    "KLDiv": lambda: (rand(3, 5).log_softmax(-1), rand(3, 5, seed=2).log_softmax(-1)),
    "GumbelSoft": lambda: (rand(3, 5), 0.6),
    "NumpySinc": lambda: (rand(3, 4),),
    "BatchNormTrain": lambda: (rand(5, 3).requires_grad_(), rand(3).requires_grad_(), rand(3, seed=1).requires_grad_(), torch.zeros(3), torch.ones(3), 0.1, 1e-5),
    "SparseEmbedding": lambda: (rand(6, 3), torch.tensor([1, 5, 1, 0])),
    "ReluInplace": lambda: (rand(3, 4),),
    "Derived": lambda: (rand(3, 4),),
    "MultiHead": lambda: (3, rand(4), rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)),
    "FFTFilter": lambda: (rand(2, 8), rand(5)),
    "SafeNorm": lambda: (torch.cat([rand(3, 4), torch.zeros(1, 4)]),),
    "Median": lambda: (rand(3, 5),),
    "SortFn": lambda: (rand(3, 5),),
    "CTCish": lambda: (rand(5, 3), rand(3, 3)),
    "Outer": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "CastsToFloat": lambda: (rand(3, 4), rand(4, 5)),
    "NonTensorOut": lambda: (rand(3, 4),),
    "LowRank": lambda: (rand(2, 3, 6), rand(2, 6), rand(5, 2)),
    "Grouped": lambda: (rand(7, 3), [2, 4, 1]),
}
