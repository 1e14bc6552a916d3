"""Right Functions that fill their gradients piece by piece: tiles, scans, lookups, sorting, spikes.

Each is used as it is and, by the tests, with one slip.
"""

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class TiledAttention(Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, block):
        scale = q.shape[-1] ** -0.5
        n = q.shape[-2]
        out = torch.zeros_like(q)
        lse = torch.zeros(q.shape[:-1], dtype=q.dtype, device=q.device)
        for start in range(0, n, block):
            stop = min(start + block, n)
            s = (q[..., start:stop, :] @ k.transpose(-1, -2)) * scale
            if causal:
                rows = torch.arange(start, stop, device=q.device)[:, None]
                cols = torch.arange(k.shape[-2], device=q.device)[None]
                s = s.masked_fill(cols > rows, float("-inf"))
            total = torch.logsumexp(s, -1)
            out[..., start:stop, :] = torch.exp(s - total[..., None]) @ v
            lse[..., start:stop] = total
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal, ctx.block, ctx.scale = causal, block, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        delta = (do * out).sum(-1)
        n = q.shape[-2]
        for start in range(0, n, ctx.block):
            stop = min(start + ctx.block, n)
            qi, doi = q[..., start:stop, :], do[..., start:stop, :]
            s = (qi @ k.transpose(-1, -2)) * ctx.scale
            if ctx.causal:
                rows = torch.arange(start, stop, device=q.device)[:, None]
                cols = torch.arange(k.shape[-2], device=q.device)[None]
                s = s.masked_fill(cols > rows, float("-inf"))
            p = torch.exp(s - lse[..., start:stop, None])
            dv += p.transpose(-1, -2) @ doi
            dp = doi @ v.transpose(-1, -2)
            ds = p * (dp - delta[..., start:stop, None]) * ctx.scale
            dq[..., start:stop, :] = ds @ k
            dk += ds.transpose(-1, -2) @ qi
        return dq, dk, dv, None, None


class SelectiveScan(Function):
    @staticmethod
    def forward(ctx, u, delta, A, B, C, D):
        # u, delta [b, l, d]; A [d, n]; B, C [b, l, n]; D [d]
        h = u.new_zeros(u.shape[0], u.shape[2], A.shape[1])
        hs, ys = [h], []
        for t in range(u.shape[1]):
            dA = torch.exp(delta[:, t, :, None] * A)
            h = dA * h + delta[:, t, :, None] * B[:, t, None, :] * u[:, t, :, None]
            hs.append(h)
            ys.append((h * C[:, t, None, :]).sum(-1) + D * u[:, t])
        ctx.save_for_backward(u, delta, A, B, C, D, torch.stack(hs, 1))
        return torch.stack(ys, 1)

    @staticmethod
    def backward(ctx, gy):
        u, delta, A, B, C, D, hs = ctx.saved_tensors
        gu, gdelta, gB, gC = torch.zeros_like(u), torch.zeros_like(delta), torch.zeros_like(B), torch.zeros_like(C)
        gA = torch.zeros_like(A)
        gD = (gy * u).sum((0, 1))
        gh = torch.zeros_like(hs[:, 0])
        for t in reversed(range(u.shape[1])):
            g = gy[:, t]
            h, prev = hs[:, t + 1], hs[:, t]
            gC[:, t] = (g[..., None] * h).sum(1)
            gh = gh + g[..., None] * C[:, t, None, :]
            dt = delta[:, t, :, None]
            dA = torch.exp(dt * A)
            gdA = gh * prev * dA
            gA += (gdA * dt).sum(0)
            x = B[:, t, None, :] * u[:, t, :, None]
            gdelta[:, t] = (gdA * A + gh * x).sum(-1)
            gB[:, t] = (gh * dt * u[:, t, :, None]).sum(1)
            gu[:, t] = (gh * dt * B[:, t, None, :]).sum(-1) + g * D
            gh = gh * dA
        return gu, gdelta, gA, gB, gC, gD


class GroupedLinear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None, groups=2):
        b = x.shape[0]
        xg = x.reshape(b, groups, -1)
        out = torch.einsum("bgi,goi->bgo", xg, weight)
        if bias is not None:
            out = out + bias
        ctx.save_for_backward(xg, weight)
        ctx.has_bias = bias is not None
        return out.reshape(b, -1)

    @staticmethod
    def backward(ctx, grad_output):
        xg, weight = ctx.saved_tensors
        g = grad_output.reshape(xg.shape[0], xg.shape[1], -1)
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = torch.einsum("bgo,goi->bgi", g, weight).reshape(xg.shape[0], -1)
        if ctx.needs_input_grad[1]:
            grad_w = torch.einsum("bgo,bgi->goi", g, xg)
        if ctx.has_bias and ctx.needs_input_grad[2]:
            grad_b = g.sum(0)
        return grad_x, grad_w, grad_b, None


class LovaszHinge(Function):
    @staticmethod
    def forward(ctx, logits, labels):
        signs = 2.0 * labels - 1.0
        errors = 1.0 - logits * signs
        sorted_errors, perm = torch.sort(errors, descending=True)
        gt = labels[perm]
        gts = gt.sum()
        inter = gts - gt.cumsum(0)
        union = gts + (1 - gt).cumsum(0)
        jac = 1.0 - inter / union
        w = jac.clone()
        w[1:] = jac[1:] - jac[:-1]
        ctx.save_for_backward(w, perm, signs, sorted_errors)
        return torch.dot(F.relu(sorted_errors), w)

    @staticmethod
    def backward(ctx, grad_output):
        w, perm, signs, sorted_errors = ctx.saved_tensors
        g_sorted = w * (sorted_errors > 0).to(w.dtype)
        g = torch.zeros_like(w)
        g[perm] = g_sorted
        return -grad_output * g * signs, None


class GridLookup(Function):
    @staticmethod
    def forward(ctx, table, coords):
        pos = coords * (table.shape[0] - 1)
        lo = pos.floor().long().clamp(0, table.shape[0] - 2)
        frac = (pos - lo).unsqueeze(-1)
        ctx.save_for_backward(table, lo, frac)
        return table[lo] * (1 - frac) + table[lo + 1] * frac

    @staticmethod
    def backward(ctx, g):
        table, lo, frac = ctx.saved_tensors
        gt = torch.zeros_like(table)
        gt.index_add_(0, lo, g * (1 - frac))
        gt.index_add_(0, lo + 1, g * frac)
        gc = ((table[lo + 1] - table[lo]) * g).sum(-1) * (table.shape[0] - 1)
        return gt, gc


class SpikingStep(Function):
    @staticmethod
    def forward(ctx, x, v, beta):
        v = beta * v + x
        s = (v > 1.0).to(v.dtype)
        ctx.save_for_backward(v)
        ctx.beta = beta
        return s, v - s

    @staticmethod
    def backward(ctx, gs, gv):
        v, = ctx.saved_tensors
        sur = 1 / (1 + 10 * (v - 1.0).abs()) ** 2
        g = gv + (gs - gv) * sur
        return g, g * ctx.beta, None


class EdgeSoftmaxAgg(Function):
    @staticmethod
    def forward(ctx, logits, feat, src, dst, num_nodes):
        mx = torch.full((num_nodes,), -1e9, dtype=logits.dtype).scatter_reduce(0, dst, logits, "amax")
        e = (logits - mx[dst]).exp()
        z = torch.zeros(num_nodes, dtype=logits.dtype).index_add(0, dst, e)
        a = e / z[dst]
        out = torch.zeros(num_nodes, feat.shape[1], dtype=feat.dtype).index_add(0, dst, a[:, None] * feat[src])
        ctx.save_for_backward(a, feat, src, dst)
        ctx.num_nodes = num_nodes
        return out

    @staticmethod
    def backward(ctx, g):
        a, feat, src, dst = ctx.saved_tensors
        ga = (g[dst] * feat[src]).sum(-1)
        s = torch.zeros(ctx.num_nodes, dtype=g.dtype).index_add(0, dst, a * ga)
        glogits = a * (ga - s[dst])
        gfeat = torch.zeros_like(feat).index_add(0, src, a[:, None] * g[dst])
        return glogits, gfeat, None, None, None


class TotalVariation(Function):
    @staticmethod
    def forward(ctx, img, weight):
        dx = img[:, :, :, 1:] - img[:, :, :, :-1]
        dy = img[:, :, 1:, :] - img[:, :, :-1, :]
        ctx.save_for_backward(dx, dy)
        ctx.weight = weight
        return weight * (dx.pow(2).sum() + dy.pow(2).sum()) / img.shape[0]

    @staticmethod
    def backward(ctx, grad_output):
        dx, dy = ctx.saved_tensors
        n, c, h, _ = dx.shape
        g = dx.new_zeros(n, c, h, dx.shape[3] + 1)
        g[:, :, :, 1:] += 2 * dx
        g[:, :, :, :-1] -= 2 * dx
        g[:, :, 1:, :] += 2 * dy
        g[:, :, :-1, :] -= 2 * dy
        return grad_output * ctx.weight * g / n, None


class SoftThreshold(Function):
    @staticmethod
    def forward(ctx, x, lam):
        out = torch.sign(x) * torch.clamp(x.abs() - lam, min=0)
        ctx.save_for_backward(out, lam)
        return out

    @staticmethod
    def backward(ctx, g):
        out, lam = ctx.saved_tensors
        active = out != 0
        gx = g * active
        glam = -(g * out.sign() * active)
        while glam.dim() > lam.dim():
            glam = glam.sum(0)
        for d, s in enumerate(lam.shape):
            if s == 1:
                glam = glam.sum(d, keepdim=True)
        return gx, glam


class ListMLE(Function):
    @staticmethod
    def forward(ctx, scores, relevance):
        order = relevance.argsort(dim=1, descending=True)
        s = scores.gather(1, order)
        lse = s.flip(1).logcumsumexp(1).flip(1)
        ctx.save_for_backward(s, lse, order)
        return (lse - s).sum(1).mean()

    @staticmethod
    def backward(ctx, g):
        s, lse, order = ctx.saved_tensors
        w = torch.exp(s) * torch.exp(-lse).cumsum(1)
        gs = (w - 1) / s.shape[0]
        out = torch.zeros_like(gs).scatter(1, order, gs)
        return g * out, None


class ProdExceptZero(Function):
    @staticmethod
    def forward(ctx, x):
        out = x.prod(-1)
        ctx.save_for_backward(x)
        return out

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        n = x.shape[-1]
        gx = torch.empty_like(x)
        for i in range(n):
            others = torch.cat([x[..., :i], x[..., i + 1 :]], -1)
            gx[..., i] = g * others.prod(-1)
        return gx


def _r(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


INPUTS = {
    "TiledAttention": lambda: (_r(2, 5, 4), _r(2, 5, 4).sin(), _r(2, 5, 4).cos(), True, 2),
    "SelectiveScan": lambda: (_r(2, 4, 3), _r(2, 4, 3).exp(), -_r(3, 2).exp(), _r(2, 4, 2), _r(2, 4, 2).cos(), _r(3)),
    "GroupedLinear": lambda: (_r(3, 6), _r(2, 4, 3), _r(2, 4), 2),
    "LovaszHinge": lambda: (_r(3, 7)[1].requires_grad_(), torch.tensor([1.0, 0, 1, 1, 0, 0, 1])),
    "GridLookup": lambda: (_r(6, 3), torch.tensor([0.11, 0.93, 0.45, 0.52, 0.17])),
    "SpikingStep": lambda: (_r(4, 5), _r(4, 5).cos(), 0.9),
    "EdgeSoftmaxAgg": lambda: (_r(6), _r(4, 3), torch.tensor([0, 1, 2, 3, 0, 1]), torch.tensor([1, 1, 2, 0, 0, 1]), 4),
    "TotalVariation": lambda: (_r(2, 3, 4, 5), 0.1),
    "ListMLE": lambda: (_r(3, 5).requires_grad_(), _r(3, 5).cos()),
    "ProdExceptZero": lambda: (_r(3, 4),),
    "SoftThreshold": lambda: (_r(3, 4, 5), torch.tensor([[0.1], [0.3], [0.2], [0.4]])),
}
