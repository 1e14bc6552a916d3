"""Functions that go wrong beside their formula, one slip each (`W_...`, marked `# BUG`), and their right neighbours."""

import functools

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_calls = {"n": 0}


class CatMany(Function):
    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim, ctx.sizes = dim, [t.size(dim) for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return (None, *g.split(ctx.sizes, ctx.dim))


class EarlyOut(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return F.linear(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        need_x, need_w = ctx.needs_input_grad
        if not need_w:
            return g @ w, None
        gw = torch.einsum("...o,...i->oi", g, x)
        if not need_x:
            return None, gw
        return g @ w, gw


def _silu_grad(x):
    s = x.sigmoid()
    return s * (1 + x * (1 - s))


class HelperOutside(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.silu(x)

    @staticmethod
    def backward(ctx, g):
        return g * _silu_grad(*ctx.saved_tensors)


def logged(f):
    @functools.wraps(f)
    def inner(*a, **k):
        return f(*a, **k)
    return inner


class Decorated(Function):
    @staticmethod
    @logged
    def forward(ctx, x, p: int = 3):
        ctx.p = p
        ctx.save_for_backward(x)
        return x ** p

    @staticmethod
    @logged
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * ctx.p * x ** (ctx.p - 1), None


class InplaceAddDirty(Function):
    @staticmethod
    def forward(ctx, buf, upd, alpha):
        buf.add_(upd, alpha=alpha)
        ctx.mark_dirty(buf)
        ctx.alpha = alpha
        return buf

    @staticmethod
    def backward(ctx, g):
        return g, g * ctx.alpha, None


class MinMaxNorm(Function):
    @staticmethod
    def forward(ctx, x):
        lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        y = (x - lo) / (hi - lo)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        r = hi - lo
        gx = g / r
        glo = (g * (y - 1)).sum(-1, keepdim=True) / r
        ghi = -(g * y).sum(-1, keepdim=True) / r
        return gx + (x == lo) * glo + (x == hi) * ghi


class NoGradInput(Function):
    @staticmethod
    def forward(ctx, x, index, weight=None):
        ctx.save_for_backward(index)
        ctx.n = x.size(0)
        return x.index_select(0, index) * (1.0 if weight is None else weight)

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        return g.new_zeros(ctx.n, *g.shape[1:]).index_add(0, index, g), None, None


class TwoSameOutputs(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y, y.clone()

    @staticmethod
    def backward(ctx, g1, g2):
        (y,) = ctx.saved_tensors
        return (g1 + g2) * y


class CumLogSumExp(Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.logcumsumexp(x, -1)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        t = g * (-y).exp()
        return x.exp() * t.flip(-1).cumsum(-1).flip(-1)


class KwDefaultsSetup(Function):
    @staticmethod
    def forward(x, scale=2.0, shift=0.5):
        return x * scale + shift

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.scale, _ = inputs

    @staticmethod
    def backward(ctx, g):
        return g * ctx.scale, None, None


class W_CatMissingNone(Function):
    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim, ctx.sizes = dim, [t.size(dim) for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return g.split(ctx.sizes, ctx.dim)  # BUG count


class W_CatReversed(Function):
    @staticmethod
    def forward(ctx, dim, *tensors):
        ctx.dim, ctx.sizes = dim, [t.size(dim) for t in tensors]
        return torch.cat(tensors, dim)

    @staticmethod
    def backward(ctx, g):
        return (None, *g.split(ctx.sizes, ctx.dim)[::-1])  # BUG reversed


class W_NeedsSwapped(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        gx = g * w if ctx.needs_input_grad[1] else None  # BUG index
        gw = g * x if ctx.needs_input_grad[0] else None  # BUG index
        return gx, gw


class W_InplaceGradView(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        flat = g.view(-1)
        flat[(x <= 0).view(-1)] = 0  # BUG writes grad
        return g


class W_MulOut(Function):
    @staticmethod
    def forward(ctx, x, m):
        ctx.save_for_backward(m)
        return x * m

    @staticmethod
    def backward(ctx, g):
        (m,) = ctx.saved_tensors
        return torch.mul(g, m, out=g), None  # BUG writes grad


class W_InputSorted(Function):
    @staticmethod
    def forward(ctx, x):
        x[x < 0] = 0  # BUG unmarked
        ctx.save_for_backward(x)
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0)


class W_OutputOnCtxList(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.sigmoid()
        ctx.cache = {"y": y}  # BUG output on ctx
        return y

    @staticmethod
    def backward(ctx, g):
        y = ctx.cache["y"]
        return g * y * (1 - y)


class W_SavedIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        e = (-x * x).exp()
        ctx.save_for_backward(x, e)  # BUG intermediate
        return x * e

    @staticmethod
    def backward(ctx, g):
        x, e = ctx.saved_tensors
        return g * e * (1 - 2 * x * x)


class W_ItemBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.norm()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        n = x.norm().item()  # BUG cut
        return g * n + x * (g * x).sum() / n


class W_Counter(Function):
    @staticmethod
    def forward(ctx, x):
        _calls["n"] += 1  # BUG state
        ctx.k = 1 + 0.1 * _calls["n"]
        return x * ctx.k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k


class W_BatchSqueeze(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.bmm(x, w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return torch.bmm(g, w.mT).squeeze(), torch.bmm(x.mT, g)  # BUG batch 1


class W_ZeroSize(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x > 0) / (x.max() / x.max())  # BUG empty and scale


class W_Strides(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.as_strided(x, (x.size(1), x.size(0)), (1, x.size(1))) * 2.0  # BUG strides

    @staticmethod
    def backward(ctx, g):
        return 2.0 * g.t()


class W_ReturnsFloat(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (g * x.sign()).half()  # BUG precision


class W_IntGrad(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (x.abs() < 1).int()  # BUG dtype


class W_Jvp(Function):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def jvp(ctx, tx, ty):
        x, y = ctx.saved_tensors
        return tx * y  # BUG jvp


class W_Vmap(Function):
    @staticmethod
    def forward(x):
        return x.sum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.shape)

    @staticmethod
    def vmap(info, in_dims, x):
        return x.movedim(in_dims[0], 0).sum(0), 0  # BUG vmap


class W_AmpHalf(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.float().t(), x.t() @ g  # BUG no custom_bwd


class W_UnpackOrder(Function):
    @staticmethod
    def forward(a, b, c):
        return a * b + c

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b, c = inputs
        ctx.save_for_backward(b, a)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors  # BUG order
        return g * b, g * a, g


class W_HelperWrong(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, g, g * 0.01), None  # BUG hard-coded slope


class W_LossReduction(Function):
    @staticmethod
    def forward(ctx, pred, target, reduction):
        ctx.save_for_backward(pred, target)
        ctx.reduction = reduction
        loss = (pred - target) ** 2
        return {"mean": loss.mean(), "sum": loss.sum(), "none": loss}[reduction]

    @staticmethod
    def backward(ctx, g):
        pred, target = ctx.saved_tensors
        d = 2 * (pred - target) * g
        if ctx.reduction == "mean":
            d = d / pred.size(0)  # BUG batch instead of numel
        return d, -d, None


class W_ThirdCycle(Function):
    @staticmethod
    def forward(ctx, a, b, c):
        ctx.save_for_backward(a, b, c)
        return a * b.sin() * c.exp()

    @staticmethod
    def backward(ctx, g):
        a, b, c = ctx.saved_tensors
        ga, gb, gc = g * b.sin() * c.exp(), g * a * b.cos() * c.exp(), g * a * b.sin() * c.exp()
        return gb, gc, ga  # BUG cycle


class W_NoneGrad(Function):
    @staticmethod
    def forward(ctx, x, gamma, beta):
        ctx.save_for_backward(x, gamma)
        return x * gamma + beta

    @staticmethod
    def backward(ctx, g):
        x, gamma = ctx.saved_tensors
        return g * gamma, (g * x).sum(0), None  # BUG none


class W_EveryOther(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.size(-1)
        return x[..., ::2] * 3

    @staticmethod
    def backward(ctx, g):
        out = g.new_zeros(*g.shape[:-1], ctx.n)
        out[..., 1::2] = (3 * g)[..., : ctx.n // 2]  # BUG offset
        return out


class W_DirtyGrad(Function):
    @staticmethod
    def forward(ctx, buf, upd, alpha):
        buf.mul_(1 - alpha).add_(upd, alpha=alpha)
        ctx.mark_dirty(buf)
        ctx.alpha = alpha
        return buf

    @staticmethod
    def backward(ctx, g):
        return g, g * ctx.alpha, None  # BUG (1 - alpha)


class W_LeadingNone(Function):
    @staticmethod
    def forward(ctx, name, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, g):
        return g, g.sum(0), None  # BUG shifted


class W_MaskedMeanWrong(Function):
    @staticmethod
    def forward(ctx, x, mask):
        m = mask.unsqueeze(-1).to(x.dtype)
        ctx.save_for_backward(m)
        return (x * m).sum(1) / m.sum(1).clamp(min=1)

    @staticmethod
    def backward(ctx, g):
        (m,) = ctx.saved_tensors
        return g.unsqueeze(1) * m / m.size(1), None  # BUG length


class W_KeepdimBroadcast(Function):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.save_for_backward(x)
        return x * bias

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g, (g * x).sum(1, keepdim=True)  # BUG first: bias dropped


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5 + seed + sum(shape)))


INPUTS = {
    "CatMany": lambda: (1, rand(2, 3), rand(2, 4), rand(2, 2)),
    "EarlyOut": lambda: (rand(2, 3, 4), rand(5, 4)),
    "HelperOutside": lambda: (rand(3, 4),),
    "Decorated": lambda: (rand(3, 4),),
    "InplaceAddDirty": lambda: (rand(3, 4), rand(3, 4, seed=1), 0.3),
    "MinMaxNorm": lambda: (rand(3, 5),),
    "NoGradInput": lambda: (rand(5, 3), torch.tensor([0, 4, 4, 1])),
    "TwoSameOutputs": lambda: (rand(3, 4),),
    "CumLogSumExp": lambda: (rand(3, 5),),
    "KwDefaultsSetup": lambda: (rand(3, 4),),
    "W_CatMissingNone": lambda: (1, rand(2, 3), rand(2, 4), rand(2, 2)),
    "W_CatReversed": lambda: (1, rand(2, 3), rand(2, 4), rand(2, 3, seed=1)),
    "W_NeedsSwapped": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "W_InplaceGradView": lambda: (rand(3, 4),),
    "W_MulOut": lambda: (rand(3, 4).requires_grad_(), rand(3, 4, seed=1)),
    "W_InputSorted": lambda: (rand(3, 4),),
    "W_OutputOnCtxList": lambda: (rand(3, 4),),
    "W_SavedIntermediate": lambda: (rand(3, 4),),
    "W_ItemBackward": lambda: (rand(3, 4),),
    "W_Counter": lambda: (rand(3, 4),),
    "W_BatchSqueeze": lambda: (rand(3, 4, 5), rand(3, 5, 2)),
    "W_ZeroSize": lambda: (rand(3, 4),),
    "W_Strides": lambda: (rand(3, 4),),
    "W_ReturnsFloat": lambda: (rand(3, 4),),
    "W_IntGrad": lambda: (rand(3, 4),),
    "W_Jvp": lambda: (rand(3, 4), rand(3, 4, seed=1)),
    "W_Vmap": lambda: (rand(3, 4),),
    "W_AmpHalf": lambda: (rand(3, 4), rand(4, 2)),
    "W_UnpackOrder": lambda: (rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)),
    "W_HelperWrong": lambda: (rand(3, 4), 0.2),
    "W_LossReduction": lambda: (rand(3, 4), rand(3, 4, seed=1), "mean"),
    "W_ThirdCycle": lambda: (rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)),
    "W_NoneGrad": lambda: (rand(3, 4), rand(4), rand(4, seed=1)),
    "W_EveryOther": lambda: (rand(3, 6),),
    "W_DirtyGrad": lambda: (rand(3, 4), rand(3, 4, seed=1), 0.3),
    "W_LeadingNone": lambda: ("relu", rand(3, 4), rand(4)),
    "W_MaskedMeanWrong": lambda: (rand(2, 5, 3), torch.tensor([[1, 1, 0, 0, 1], [1, 0, 0, 0, 0]]).bool()),
    "W_KeepdimBroadcast": lambda: (rand(3, 4), rand(3, 1)),
}
