"""Right code that lint once accused, from packages it had not read before (rounds 7 to 17)."""

import functools

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def train(net, loader, optimizer, loss_fn):
    running_loss = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        optimizer.step()
        loss.detach_()
        running_loss = running_loss + loss
    return running_loss


class Layout(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.displacement = nn.Parameter(torch.empty((n, 2)))
        self.displacement.requires_grad = False

    def forward(self, idxes, push):
        self.displacement[idxes, :] = push.sum(dim=1)


class Scan(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a_log = nn.Parameter(torch.zeros(d))

    def step(self, x, ssm_state):
        decay = torch.exp(-torch.exp(self.a_log))
        ssm_state.copy_(ssm_state * decay + x)
        return ssm_state


def precondition(ql, qr, grad):
    max_l = torch.max(ql)
    max_r = torch.max(qr)
    rho = torch.sqrt(max_l / max_r)
    ql /= rho
    qr *= rho
    return ql * grad * qr


def l2_normalize(d):
    flat = d.view(d.shape[0], -1)
    d /= torch.norm(flat, dim=1, keepdim=True) + 1e-8
    return d


class Hyperbolic(nn.Module):
    def __init__(self, layer, n):
        super().__init__()
        self.curvatures = [nn.Parameter(torch.ones(1)) for _ in range(2)]
        self.encoder = layer(n, c=self.curvatures[0])
        self.decoder = layer(n, c=self.curvatures[1])


def evaluate(model, loader):
    hits = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
    return hits


def schedule(model, loader, context):
    run = functools.partial(evaluate, model)
    with context(model):
        return run(loader)


def block_major(weight: torch.Tensor):
    experts, rows, cols = weight.shape
    block = 128 // weight.element_size()
    return weight.view(experts, cols // block, rows, block)


def averaged(model, ema, momentum):
    for ema_p, p in zip(ema.parameters(), model.parameters()):
        ema_p.data.mul_(1 - momentum).add_(p.data, alpha=momentum)


def weighted(net, x, y, crit):
    out = net(x)
    hard = (out.argmax(1) != y).float()
    loss = (crit(out, y) * hard).mean()
    loss.backward()


def pooled(hidden, mask):
    hidden = hidden * mask.unsqueeze(-1)
    return hidden.sum(1) / mask.sum(1, keepdim=True)


def per_turn(make, data):
    for x, y in data:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


def to_tensors(x_int: torch.Tensor, y: torch.Tensor):
    x_int = torch.log(torch.tensor(x_int, dtype=torch.float) + 1)
    return x_int, torch.tensor(y.astype(np.float32))


def update_(H: torch.Tensor, y: torch.Tensor):
    Hy = H @ y
    term = y.outer(y) / y.dot(Hy)
    H -= term
    return H


class Mixture(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.variance = nn.Parameter(torch.ones(k, 3))

    def forward(self, x):
        var = F.softplus(self.variance)
        self.variance[0, :].data = 0.9 * self.variance[0, :]
        return x / var


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, lengths):
        ctx.tree = tree
        ctx.save_for_backward(lengths)
        return lengths.sum()

    @staticmethod
    def backward(ctx, grad_output):
        def part(param, offset):
            return param, offset

        (lengths,) = ctx.saved_tensors
        return None, part(grad_output * torch.ones_like(lengths), 0)[0]


def two_discriminators(losses, preds, optimizers):
    loss_a = losses["adversarial"](preds["real_a"], True) + losses["adversarial"](preds["fake_a"], False)
    loss_b = losses["adversarial"](preds["real_b"], True) + losses["adversarial"](preds["fake_b"], False)
    optimizers["a"].zero_grad()
    loss_a.backward(retain_graph=True)
    optimizers["a"].step()
    optimizers["b"].zero_grad()
    loss_b.backward()
    optimizers["b"].step()


def packed(x, lens):
    rnn = nn.LSTM(3, 4)
    output, _ = rnn(nn.utils.rnn.pack_padded_sequence(x, lens))
    output.data.float().sum().backward()


def own_framework(model, optimizer, loss_of, x, y):
    for _ in range(10):
        loss = loss_of(model.forward(x), y)
        model.clear_grads()
        loss.backward()
        optimizer.step()


def either(x: torch.Tensor):
    is_tensor = isinstance(x, torch.Tensor)
    if not is_tensor:
        x = torch.tensor(x, dtype=torch.float32)
    return x


def spread(neighbours: torch.Tensor, leading):
    n, k = neighbours.shape
    return neighbours.view(*([1] * len(leading)), 1, n, k)


class Projections(nn.Module):
    def __init__(self, same):
        super().__init__()
        self.projections = []
        self.projections.append(nn.Sequential())


class Edges(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(10, 4, padding_idx=0)

    def forward(self, kinds):
        return self.encoder(kinds).mean(-2)


class Query(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, c):
        idx = (a - b).argmin(c)
        ctx.mark_non_differentiable(idx)
        return idx

    @staticmethod
    def backward(ctx, grad=None):
        return None, None


class Norm(nn.Module):  # FSDP calls `reset_parameters` under no_grad, after it has left the meta device
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def reset_parameters(self):
        if hasattr(self, "weight"):
            self.weight.fill_(1)


def is_pure(blades: torch.Tensor):
    if not type(blades) in [torch.Tensor]:
        blades = torch.tensor(blades)
    return blades.long()


def scene_of(dsm, device="cpu"):
    if type(dsm) is not torch.Tensor:
        dsm = torch.tensor(dsm, device=device)
    return dsm.unsqueeze(-1)


scene_of(torch.rand(4, 4))


class Watson(nn.Module):
    def __init__(self, n, trainable=False):
        super().__init__()
        self.trainable = trainable
        self.phase = nn.Parameter(torch.zeros(n, n), requires_grad=trainable)

    def weights(self):
        w = torch.exp(self.phase)
        if not self.trainable:
            w[0, 0] = 0.0
        return w

    def forward(self, x):
        return (x * self.weights()).sum()


class Parallel(nn.Module):
    def __init__(self, n, both):
        super().__init__()
        self.both = both
        self.first = nn.LayerNorm(n)
        self.last = nn.Linear(n, n)

    def forward(self, x: torch.Tensor):
        out = x
        if self.both:
            out = self.first(x)
        y = self.last(out)
        if not self.both:
            return y
        return y * 2


class Residual(nn.Module):
    def __init__(self, n, new):
        super().__init__()
        self.new = new
        self.norm = nn.LayerNorm(n)

    def forward(self, x: torch.Tensor, y: torch.Tensor):
        h = x * 1
        kept = h
        if self.new:
            kept = self.norm(h)
        if not self.new:
            h += y
        return kept + h


def grid(nx, ny):
    x = torch.linspace(-1, 1, steps=ny).expand(nx, -1)
    x.unsqueeze_(0).unsqueeze_(3)
    return x.contiguous()


def epoch(model, loader, criterion, optimizer):
    total_loss = 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            total_loss += loss
    return total_loss


def displaced():
    a = torch.eye(3).expand(1, -1, -1)
    a[..., :2, -1] = torch.tensor([1.0, 0.0])
    return a


def support(cfg, poly, poly_mask, faces, support_masked):
    s = cfg.smooth_sharpness
    dist_mask = torch.where(poly_mask, torch.zeros_like(poly), torch.full_like(poly, -1e6))
    a = (torch.softmax(s * dist_mask, dim=0) * poly).sum(dim=0)
    face = (torch.softmax(-s * support_masked, dim=0) * faces).sum(dim=0)
    soft_mask = poly_mask.float()
    return a + (torch.softmax(s * soft_mask, dim=0) * poly).sum(dim=0), face


class OneOfThem(nn.Module):
    """The one that is used is assigned, and so registered."""

    def __init__(self):
        super().__init__()
        self._models = {"a": nn.Sequential(nn.Linear(2, 2)), "b": nn.Sequential(nn.Linear(2, 3))}
        self._blocks = [nn.Linear(2, 2), nn.Linear(2, 2)]

    def choose(self, which, first):
        self._model = self._models[which]
        self._block = self._blocks[0] if first else self._blocks[1]

    def forward(self, x):
        return self._block(self._model(x))


class HandedOn(nn.Module):
    def __init__(self, n):
        super().__init__()
        parts = []
        for _ in range(n):
            parts.append(nn.Linear(2, 2))
        self.net = nn.Sequential(*parts)
        self.parts = parts

    def forward(self, x):
        return self.net(x)


class NoLayers(nn.Module):
    def forward(self, x):
        return x.reshape(8, -1)
