"""Functions as papers have them: attention, losses, normalisations, samplers, recurrences. All are right; `INPUTS` says what they take."""

import math

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class AdditiveAttentionScores(Function):
    @staticmethod
    def forward(ctx, query, keys, v):
        hidden = torch.tanh(query.unsqueeze(1) + keys)
        ctx.save_for_backward(query, keys, v)
        return hidden @ v

    @staticmethod
    def backward(ctx, grad_scores):
        query, keys, v = ctx.saved_tensors
        hidden = torch.tanh(query.unsqueeze(1) + keys)
        grad_hidden = grad_scores.unsqueeze(-1) * v
        grad_pre = grad_hidden * (1 - hidden ** 2)
        grad_v = (grad_scores.unsqueeze(-1) * hidden).sum((0, 1))
        return grad_pre.sum(1), grad_pre, grad_v


class GeGLU(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        value, gate = x.chunk(2, dim=-1)
        return value * F.gelu(gate)

    @staticmethod
    def backward(ctx, grad_out):
        (x,) = ctx.saved_tensors
        value, gate = x.chunk(2, dim=-1)
        cdf = 0.5 * (1 + torch.erf(gate / math.sqrt(2)))
        pdf = torch.exp(-0.5 * gate ** 2) / math.sqrt(2 * math.pi)
        grad_value = grad_out * gate * cdf
        grad_gate = grad_out * value * (cdf + gate * pdf)
        return torch.cat([grad_value, grad_gate], dim=-1)


class LabelSmoothingLoss(Function):
    @staticmethod
    def forward(ctx, logits, target, smoothing=0.1, reduction="mean"):
        logp = logits.log_softmax(-1)
        n = logits.size(-1)
        q = torch.full_like(logp, smoothing / n)
        q.scatter_(1, target.unsqueeze(1), 1 - smoothing + smoothing / n)
        loss = -(q * logp).sum(-1)
        ctx.save_for_backward(logits, q)
        ctx.reduction = reduction
        if reduction == "mean":
            return loss.mean()
        if reduction == "sum":
            return loss.sum()
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        logits, q = ctx.saved_tensors
        grad = logits.softmax(-1) - q
        if ctx.reduction == "mean":
            grad = grad / logits.size(0)
        if ctx.reduction == "none":
            grad_output = grad_output.unsqueeze(1)
        return grad * grad_output, None, None, None


class TripletLoss(Function):
    @staticmethod
    def forward(ctx, anchor, positive, negative, margin):
        d_pos = (anchor - positive).pow(2).sum(1)
        d_neg = (anchor - negative).pow(2).sum(1)
        hinge = F.relu(d_pos - d_neg + margin)
        ctx.save_for_backward(anchor, positive, negative, hinge > 0)
        return hinge.mean()

    @staticmethod
    def backward(ctx, grad):
        anchor, positive, negative, active = ctx.saved_tensors
        w = (active.to(anchor.dtype) * grad / anchor.size(0)).unsqueeze(1)
        g_anchor = w * 2 * (negative - positive)
        g_positive = -w * 2 * (anchor - positive)
        g_negative = w * 2 * (anchor - negative)
        return g_anchor, g_positive, g_negative, None


class ScatterAddNodes(Function):
    """Message passing: sums edge features into nodes."""

    @staticmethod
    def forward(ctx, num_nodes, edge_index, x, weight):
        src, dst = edge_index
        messages = x[src] * weight.unsqueeze(-1)
        out = x.new_zeros(num_nodes, x.size(1))
        out.index_add_(0, dst, messages)
        ctx.save_for_backward(edge_index, x, weight)
        return out

    @staticmethod
    def backward(ctx, grad_out):
        edge_index, x, weight = ctx.saved_tensors
        src, dst = edge_index
        grad_messages = grad_out[dst]
        grad_x = grad_weight = None
        if ctx.needs_input_grad[2]:
            grad_x = torch.zeros_like(x).index_add(0, src, grad_messages * weight.unsqueeze(-1))
        if ctx.needs_input_grad[3]:
            grad_weight = (grad_messages * x[src]).sum(-1)
        return None, None, grad_x, grad_weight


class SegmentSoftmax(Function):
    @staticmethod
    def forward(ctx, scores, segment, num_segments):
        biggest = scores.new_full((num_segments,), -math.inf).scatter_reduce(0, segment, scores, "amax")
        e = (scores - biggest[segment]).exp()
        total = scores.new_zeros(num_segments).index_add(0, segment, e)
        p = e / total[segment]
        ctx.save_for_backward(p, segment)
        ctx.n = num_segments
        return p

    @staticmethod
    def backward(ctx, grad):
        p, segment = ctx.saved_tensors
        weighted = grad * p
        total = weighted.new_zeros(ctx.n).index_add(0, segment, weighted)
        return weighted - p * total[segment], None, None


class RoPEInterleaved(Function):
    @staticmethod
    def forward(ctx, x, theta):
        t = torch.arange(x.size(-2), dtype=x.dtype, device=x.device)
        angle = t[:, None] * theta
        ctx.save_for_backward(theta)
        even, odd = x[..., 0::2], x[..., 1::2]
        c, s = angle.cos(), angle.sin()
        out = torch.empty_like(x)
        out[..., 0::2] = even * c - odd * s
        out[..., 1::2] = even * s + odd * c
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        (theta,) = ctx.saved_tensors
        t = torch.arange(grad_out.size(-2), dtype=grad_out.dtype, device=grad_out.device)
        angle = t[:, None] * theta
        c, s = angle.cos(), angle.sin()
        ge, go = grad_out[..., 0::2], grad_out[..., 1::2]
        grad_x = torch.empty_like(grad_out)
        grad_x[..., 0::2] = ge * c + go * s
        grad_x[..., 1::2] = go * c - ge * s
        return grad_x, None


class DepthwiseConv(Function):
    @staticmethod
    def forward(ctx, x, weight, padding):
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return F.conv2d(x, weight, padding=padding, groups=x.size(1))

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        groups = x.size(1)
        grad_x = torch.nn.grad.conv2d_input(x.shape, weight, grad_output, padding=ctx.padding, groups=groups)
        grad_w = torch.nn.grad.conv2d_weight(x, weight.shape, grad_output, padding=ctx.padding, groups=groups)
        return grad_x, grad_w, None


class BilinearSample1d(Function):
    """Samples x [B, C, L] at real positions [B, P]."""

    @staticmethod
    def forward(ctx, x, pos):
        length = x.size(-1)
        left = pos.floor().clamp(0, length - 2)
        frac = pos - left
        i = left.long().unsqueeze(1).expand(-1, x.size(1), -1)
        a, b = x.gather(2, i), x.gather(2, i + 1)
        f = frac.unsqueeze(1)
        ctx.save_for_backward(x, pos)
        return a * (1 - f) + b * f

    @staticmethod
    def backward(ctx, grad):
        x, pos = ctx.saved_tensors
        length = x.size(-1)
        left = pos.floor().clamp(0, length - 2)
        f = (pos - left).unsqueeze(1)
        i = left.long().unsqueeze(1).expand(-1, x.size(1), -1)
        grad_x = torch.zeros_like(x).scatter_add(2, i, grad * (1 - f)).scatter_add(2, i + 1, grad * f)
        grad_pos = (grad * (x.gather(2, i + 1) - x.gather(2, i))).sum(1)
        return grad_x, grad_pos


class SinkhornStep(Function):
    @staticmethod
    def forward(ctx, log_p):
        rows = log_p.logsumexp(-1, keepdim=True)
        half = log_p - rows
        cols = half.logsumexp(-2, keepdim=True)
        out = half - cols
        ctx.save_for_backward(log_p, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        log_p, out = ctx.saved_tensors
        grad_half = grad - out.exp() * grad.sum(-2, keepdim=True)
        return grad_half - log_p.softmax(-1) * grad_half.sum(-1, keepdim=True)


class SoftRank(Function):
    @staticmethod
    def forward(ctx, x, tau):
        diff = (x.unsqueeze(-1) - x.unsqueeze(-2)) / tau
        s = diff.sigmoid()
        ctx.save_for_backward(x)
        ctx.tau = tau
        return s.sum(-1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        s = ((x.unsqueeze(-1) - x.unsqueeze(-2)) / ctx.tau).sigmoid()
        ds = s * (1 - s) / ctx.tau
        return g * ds.sum(-1) - (g.unsqueeze(-1) * ds).sum(-2), None


class WeightNorm(Function):
    @staticmethod
    def forward(ctx, v, g):
        norm = v.flatten(1).norm(dim=1).view(-1, *[1] * (v.dim() - 1))
        ctx.save_for_backward(v, g)
        return v * (g.view_as(norm) / norm)

    @staticmethod
    def backward(ctx, grad_w):
        v, g = ctx.saved_tensors
        norm = v.flatten(1).norm(dim=1).view(-1, *[1] * (v.dim() - 1))
        dot = (grad_w * v).flatten(1).sum(1).view_as(norm)
        grad_g = (dot / norm).view_as(g)
        grad_v = g.view_as(norm) * (grad_w / norm - v * dot / norm ** 3)
        return grad_v, grad_g


class LinearCrossEntropyChunked(Function):
    """Memory-efficient: gradients are computed in forward."""

    @staticmethod
    def forward(ctx, hidden, weight, target, chunk):
        loss = hidden.new_zeros(())
        grad_h = torch.empty_like(hidden)
        grad_w = torch.zeros_like(weight)
        n = hidden.size(0)
        for start in range(0, n, chunk):
            h = hidden[start:start + chunk]
            logits = h @ weight.t()
            t = target[start:start + chunk]
            loss = loss + F.cross_entropy(logits, t, reduction="sum")
            p = logits.softmax(-1)
            p[torch.arange(len(t)), t] -= 1
            grad_h[start:start + chunk] = p @ weight
            grad_w += p.t() @ h
        ctx.save_for_backward(grad_h / n, grad_w / n)
        return loss / n

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        grad_h, grad_w = ctx.saved_tensors
        return grad_output * grad_h, grad_output * grad_w, None, None


class MaskedSoftmax(Function):
    @staticmethod
    def forward(x, mask):
        return x.masked_fill(~mask, -1e9).softmax(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad_output):
        (p,) = ctx.saved_tensors
        return p * (grad_output - (p * grad_output).sum(-1, keepdim=True)), None


class SquareWithJvp(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x * x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, scale = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.scale = scale

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.scale * grad_output, None

    @staticmethod
    def jvp(ctx, x_t, _):
        (x,) = ctx.saved_tensors
        return 2 * x * ctx.scale * x_t


class AmpLinear(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        out = x @ weight.t()
        return out if bias is None else out + bias

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad_out):
        x, weight = ctx.saved_tensors
        grad_x = grad_out @ weight
        grad_w = grad_out.flatten(0, -2).t() @ x.flatten(0, -2)
        grad_b = grad_out.flatten(0, -2).sum(0) if ctx.has_bias else None
        return grad_x, grad_w, grad_b


class Checkpointed(Function):
    @staticmethod
    def forward(ctx, run, x, w):
        ctx.run = run
        ctx.save_for_backward(x, w)
        with torch.no_grad():
            return run(x, w)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            out = ctx.run(x, w)
        gx, gw = torch.autograd.grad(out, (x, w), grad)
        return None, gx, gw


class InplaceLeaky(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.slope = slope
        ctx.mark_dirty(x)
        mask = x > 0
        ctx.save_for_backward(mask)
        x.mul_(torch.where(mask, 1.0, slope).to(x.dtype))
        return x

    @staticmethod
    def backward(ctx, grad):
        (mask,) = ctx.saved_tensors
        return torch.where(mask, grad, grad * ctx.slope), None


class MomentsNone(Function):
    """Mean, variance and an optional third output."""

    @staticmethod
    def forward(ctx, x, with_skew):
        mean = x.mean(-1)
        var = x.var(-1, unbiased=False)
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return mean, var, None

    @staticmethod
    def backward(ctx, g_mean, g_var, _):
        (x,) = ctx.saved_tensors
        n = x.size(-1)
        out = torch.zeros_like(x)
        if g_mean is not None:
            out = out + g_mean.unsqueeze(-1) / n
        if g_var is not None:
            out = out + g_var.unsqueeze(-1) * 2 * (x - x.mean(-1, keepdim=True)) / n
        return out, None


class TopKWithIndices(Function):
    @staticmethod
    def forward(ctx, x, k):
        values, indices = x.topk(k, dim=-1)
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        ctx.size = x.size(-1)
        return values, indices

    @staticmethod
    def backward(ctx, grad_values, _):
        (indices,) = ctx.saved_tensors
        shape = (*grad_values.shape[:-1], ctx.size)
        return grad_values.new_zeros(shape).scatter(-1, indices, grad_values), None


class InnerProductKernel(Function):
    @staticmethod
    def forward(ctx, a, b, gamma: float):
        sq = (a * a).sum(1, keepdim=True) + (b * b).sum(1) - 2 * a @ b.t()
        k = torch.exp(-gamma * sq)
        ctx.save_for_backward(a, b, k)
        ctx.gamma = gamma
        return k

    @staticmethod
    def backward(ctx, g):
        a, b, k = ctx.saved_tensors
        w = g * k * (-2 * ctx.gamma)
        ga = a * w.sum(1, keepdim=True) - w @ b
        gb = b * w.sum(0).unsqueeze(1) - w.t() @ a
        return ga, gb, None


class Cauchy(Function):
    @staticmethod
    def forward(ctx, pred, target, c):
        r = (pred - target) / c
        ctx.save_for_backward(pred, target)
        ctx.c = c
        return c * c / 2 * torch.log1p(r * r).sum()

    @staticmethod
    def backward(ctx, grad):
        pred, target = ctx.saved_tensors
        diff = pred - target
        g = grad * diff / (1 + (diff / ctx.c) ** 2)
        return g, -g, None


class Conv1dCausal(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        k = w.size(-1)
        return F.conv1d(F.pad(x, (k - 1, 0)), w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        k = w.size(-1)
        gx = F.conv_transpose1d(g, w)[..., k - 1:]
        cols = F.pad(x, (k - 1, 0)).unfold(-1, k, 1)
        gw = torch.einsum("bol,bilk->oik", g, cols)
        return gx, gw


class DiffThroughSolve(Function):
    @staticmethod
    def forward(ctx, a, b):
        x = torch.linalg.solve(a, b)
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx, g):
        a, x = ctx.saved_tensors
        gb = torch.linalg.solve(a.mT, g)
        return -gb @ x.mT, gb


class LogDet(Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.logdet(a @ a.mT + torch.eye(a.size(-2), dtype=a.dtype))

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        m = a @ a.mT + torch.eye(a.size(-2), dtype=a.dtype)
        return 2 * g[..., None, None] * torch.linalg.solve(m, a)


class ExpMovingAverage(Function):
    @staticmethod
    def forward(ctx, x, decay):
        h = torch.zeros_like(x[:, 0])
        out = []
        for t in range(x.size(1)):
            h = decay * h + (1 - decay) * x[:, t]
            out.append(h)
        ctx.decay = decay
        return torch.stack(out, 1) if out else torch.zeros_like(x)

    @staticmethod
    def backward(ctx, g):
        carry = torch.zeros_like(g[:, 0])
        grads = []
        for t in reversed(range(g.size(1))):
            carry = g[:, t] + ctx.decay * carry
            grads.append((1 - ctx.decay) * carry)
        return torch.stack(grads[::-1], 1), None


class PowLearned(Function):
    @staticmethod
    def forward(ctx, x, p):
        y = x.abs().pow(p)
        ctx.save_for_backward(x, p, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, p, y = ctx.saved_tensors
        gx = g * p * x.abs().pow(p - 1) * x.sign()
        gp = (g * y * x.abs().log()).sum_to_size(p.shape)
        return gx, gp


class TwoStage(Function):
    """Calls another Function inside."""

    @staticmethod
    def forward(ctx, x, w):
        h = GeGLU.apply(x)
        ctx.save_for_backward(x, w)
        return h @ w

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            h = GeGLU.apply(leaf)
        (gx,) = torch.autograd.grad(h, leaf, g @ w.t())
        return gx, h.detach().flatten(0, -2).t() @ g.flatten(0, -2)


class ChannelShuffleScale(Function):
    @staticmethod
    def forward(ctx, x, groups, scale):
        b, c, h, w = x.shape
        out = x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        ctx.groups = groups
        ctx.save_for_backward(x, scale)
        return out * scale.view(1, -1, 1, 1)

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        b, c, h, w = x.shape
        shuffled = x.reshape(b, ctx.groups, c // ctx.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        gs = (g * shuffled).sum((0, 2, 3))
        gx = (g * scale.view(1, -1, 1, 1)).reshape(b, c // ctx.groups, ctx.groups, h, w).transpose(1, 2).reshape(b, c, h, w)
        return gx, None, gs


class Dice(Function):
    @staticmethod
    def forward(ctx, probs, target, eps=1.0):
        inter = (probs * target).flatten(1).sum(1)
        total = (probs + target).flatten(1).sum(1)
        ctx.save_for_backward(probs, target)
        ctx.eps = eps
        return (1 - (2 * inter + eps) / (total + eps)).mean()

    @staticmethod
    def backward(ctx, grad):
        probs, target = ctx.saved_tensors
        inter = (probs * target).flatten(1).sum(1)
        total = (probs + target).flatten(1).sum(1)
        shape = (-1,) + (1,) * (probs.dim() - 1)
        num, den = (2 * inter + ctx.eps).view(shape), (total + ctx.eps).view(shape)
        g = -(2 * target * den - num) / den ** 2
        return grad * g / probs.size(0), None, None


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7 + seed + sum(shape)))


def ints(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(3))


def _run(x, w):
    return torch.tanh(x @ w).cumsum(0)


INPUTS = {
    "AdditiveAttentionScores": lambda: (rand(2, 4), rand(2, 3, 4), rand(4)),
    "GeGLU": lambda: (rand(3, 8),),
    "LabelSmoothingLoss": lambda: (rand(6, 5), ints(5, 6)),
    "TripletLoss": lambda: (rand(6, 3), rand(6, 3, seed=1), rand(6, 3, seed=2), 0.5),
    "ScatterAddNodes": lambda: (5, ints(5, 2, 9), rand(5, 3), rand(9)),
    "SegmentSoftmax": lambda: (rand(8), torch.tensor([0, 1, 1, 0, 2, 2, 2, 1]), 3),
    "RoPEInterleaved": lambda: (rand(2, 5, 6).requires_grad_(), rand(3).abs()),
    "DepthwiseConv": lambda: (rand(2, 3, 6, 5), rand(3, 1, 3, 3), 1),
    "BilinearSample1d": lambda: (rand(2, 3, 7), torch.tensor([[0.3, 4.7, 2.2], [5.5, 1.1, 3.9]])),
    "SinkhornStep": lambda: (rand(2, 3, 4),),
    "SoftRank": lambda: (rand(3, 5), 0.4),
    "WeightNorm": lambda: (rand(4, 3, 2), rand(4)),
    "LinearCrossEntropyChunked": lambda: (rand(6, 4), rand(5, 4), ints(5, 6), 4),
    "MaskedSoftmax": lambda: (rand(3, 5), torch.tensor([1, 1, 0, 1, 0]).bool()),
    "SquareWithJvp": lambda: (rand(3, 4), 1.7),
    "AmpLinear": lambda: (rand(2, 3, 4), rand(5, 4), rand(5)),
    "Checkpointed": lambda: (_run, rand(3, 4), rand(4, 2)),
    "InplaceLeaky": lambda: (rand(3, 4), 0.2),
    "MomentsNone": lambda: (rand(3, 5), True),
    "TopKWithIndices": lambda: (rand(3, 6), 2),
    "InnerProductKernel": lambda: (rand(3, 4), rand(5, 4), 0.3),
    "Cauchy": lambda: (rand(4, 3), rand(4, 3, seed=1), 0.8),
    "Conv1dCausal": lambda: (rand(2, 3, 7), rand(4, 3, 3)),
    "DiffThroughSolve": lambda: (rand(4, 4) + 4 * torch.eye(4), rand(4, 2)),
    "LogDet": lambda: (rand(3, 4),),
    "ExpMovingAverage": lambda: (rand(2, 5, 3), 0.8),
    "PowLearned": lambda: (rand(4, 3), rand(3).abs() + 1),
    "TwoStage": lambda: (rand(3, 8), rand(4, 2)),
    "ChannelShuffleScale": lambda: (rand(2, 6, 3, 2), 3, rand(6)),
    "Dice": lambda: (rand(3, 4, 2).sigmoid().requires_grad_(), (rand(3, 4, 2, seed=1) > 0).float()),
}
