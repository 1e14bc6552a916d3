"""Correct models that look suspicious to a careless auditor. Not one of them may be accused."""

from __future__ import annotations

import dataclasses
import math
import typing

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CORRECT: dict[str, typing.Callable[[], dict]] = {}


def correct(build):
    CORRECT[build.__name__] = build
    return build


def ids(b=4, n=7, vocab=30, pad=0):
    x = torch.randint(1, vocab, (b, n))
    lengths = torch.tensor([n, n - 2, n - 4, n][:b])
    valid = torch.arange(n)[None] < lengths[:, None]
    return x.masked_fill(~valid, pad), lengths, valid


def ce(y):
    return lambda out: F.cross_entropy(out, y)


Y4 = torch.tensor([0, 1, 2, 1])


class Seq(nn.Module):
    def __init__(self, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)


@correct
def bag_of_words_with_zero_padding():
    class M(Seq):
        def forward(self, x, lengths):
            return self.out(self.emb(x).sum(1) / lengths[:, None])

    x, n, _ = ids()
    return {"model": M(emb=nn.Embedding(30, 8, padding_idx=0), out=nn.Linear(8, 3)), "batch": (x, n), "loss_fn": ce(Y4)}


@correct
def embedding_bag():
    class M(Seq):
        def forward(self, x):
            return self.out(self.bag(x))

    return {"model": M(bag=nn.EmbeddingBag(30, 8, mode="mean", padding_idx=0), out=nn.Linear(8, 3)), "batch": ids()[0], "loss_fn": ce(Y4)}


@correct
def masked_text_convolution():
    class M(Seq):
        def forward(self, x, mask):
            h = self.emb(x) * mask[..., None]
            h = self.conv(h.mT).relu().mT
            h = h.masked_fill(~mask[..., None], float("-inf"))
            return self.out(h.amax(1))

    x, _, mask = ids()
    return {"model": M(emb=nn.Embedding(30, 8), conv=nn.Conv1d(8, 8, 3, padding=1), out=nn.Linear(8, 3)), "batch": (x, mask), "loss_fn": ce(Y4)}


@correct
def time_first_recurrent():
    class M(Seq):
        def forward(self, x):
            return self.out(self.rnn(x)[0][-1])

    return {"model": M(rnn=nn.LSTM(5, 8), out=nn.Linear(8, 3)), "batch": torch.randn(9, 4, 5), "loss_fn": ce(Y4)}


@correct
def time_first_recurrent_without_loss():
    class M(Seq):
        def forward(self, x):
            return self.out(self.rnn(x)[0])

    return {"model": M(rnn=nn.GRU(5, 8), out=nn.Linear(8, 3)), "batch": torch.randn(9, 4, 5)}


@correct
def time_first_transformer():
    class M(Seq):
        def forward(self, src, tgt, src_key_padding_mask):
            causal = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            h = self.t(self.emb(src).transpose(0, 1), self.emb(tgt).transpose(0, 1), tgt_mask=causal,
                       src_key_padding_mask=src_key_padding_mask, memory_key_padding_mask=src_key_padding_mask)  # fmt: skip
            return self.out(h).transpose(0, 1)

    x, _, mask = ids()
    model = M(emb=nn.Embedding(30, 8), t=nn.Transformer(8, 2, 1, 1, 16), out=nn.Linear(8, 30))
    return {"model": model, "batch": {"src": x, "tgt": torch.randint(1, 30, (4, 5)), "src_key_padding_mask": ~mask}}


@correct
def deep_sets_with_mask():
    class M(Seq):
        def forward(self, x, mask):
            h = self.phi(x).relu() * mask[..., None]
            return self.rho(h.sum(1))

    x, _, mask = ids()
    return {"model": M(phi=nn.Linear(5, 8), rho=nn.Linear(8, 3)), "batch": (torch.randn(4, 7, 5), mask), "loss_fn": ce(Y4)}


@correct
def attention_pooling():
    class M(Seq):
        def forward(self, x):
            w = torch.softmax(self.score(x), dim=1)
            return self.out((w * x).sum(1))

    return {"model": M(score=nn.Linear(5, 1), out=nn.Linear(5, 3)), "batch": torch.randn(4, 6, 5), "loss_fn": ce(Y4)}


@correct
def autoencoder_of_tokens():
    class M(Seq):
        def forward(self, x):
            h = self.emb(x)
            return self.out(torch.tanh(self.mix(h) + h.mean(1, keepdim=True)))

    x = torch.randint(0, 30, (4, 7))
    return {
        "model": M(emb=nn.Embedding(30, 8), mix=nn.Linear(8, 8), out=nn.Linear(8, 30)),
        "batch": x, "loss_fn": lambda out: F.cross_entropy(out.reshape(-1, 30), x.reshape(-1)),
    }  # fmt: skip


@correct
def mixture_of_experts():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(5, 4)
            self.experts = nn.ModuleList(nn.Linear(5, 3) for _ in range(4))

        def forward(self, x):
            weight, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            weight = weight / weight.sum(-1, keepdim=True)
            out = torch.zeros(x.shape[0], 3)
            for e, expert in enumerate(self.experts):
                row, slot = (chosen == e).nonzero(as_tuple=True)
                if len(row):
                    out = out.index_add(0, row, weight[row, slot, None] * expert(x[row]))
            return out

    return {"model": M(), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def vector_quantisation_straight_through():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc, self.dec = nn.Linear(6, 4), nn.Linear(4, 6)
            self.book = nn.Parameter(torch.randn(5, 4))

        def forward(self, x):
            z = self.enc(x)
            nearest = ((z[:, None] - self.book[None]) ** 2).sum(-1).argmin(-1)
            q = self.book[nearest]
            out = self.dec(z + (q - z).detach())
            return F.mse_loss(out, x) + F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())

    return {"model": M(), "batch": torch.randn(6, 6)}


@correct
def gumbel_softmax_hard():
    class M(Seq):
        def forward(self, x):
            return self.out(F.gumbel_softmax(self.gate(x), hard=True))

    return {"model": M(gate=nn.Linear(5, 4), out=nn.Linear(4, 3)), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def policy_gradient():
    reward = torch.randn(4)

    def loss(logits):
        policy = torch.distributions.Categorical(logits=logits)
        action = policy.sample()
        return -(policy.log_prob(action) * (reward - reward.mean())).mean() - 0.01 * policy.entropy().mean()

    return {"model": nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def q_learning():
    target = nn.Linear(5, 3)
    state, action, reward = torch.randn(4, 5), torch.tensor([0, 2, 1, 1]), torch.randn(4)

    def loss(q):
        with torch.no_grad():
            goal = reward + 0.9 * target(state).max(1).values
        return F.smooth_l1_loss(q.gather(1, action.unsqueeze(1)).squeeze(1), goal)

    return {"model": nn.Linear(5, 3), "batch": state, "loss_fn": loss}


@correct
def sinusoidal_features():
    class M(Seq):
        def forward(self, t):
            freq = torch.exp(-math.log(10000) * torch.arange(4) / 4)
            angle = t[:, None] * freq
            return self.out(torch.cat([angle.sin(), angle.cos()], -1))

    return {"model": M(out=nn.Linear(8, 3)), "batch": torch.rand(4), "loss_fn": ce(Y4)}


@correct
def rotary_positions():
    class M(Seq):
        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            angle = torch.outer(torch.arange(x.shape[1]).float(), 1.0 / 100 ** (torch.arange(4) / 4))
            cos, sin = angle.cos(), angle.sin()

            def turn(z):
                a, b = z[..., :4], z[..., 4:]
                return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

            return F.scaled_dot_product_attention(turn(q), turn(k), v)

    return {"model": M(qkv=nn.Linear(8, 24)), "batch": torch.randn(3, 8, 8)}


@correct
def conditional_random_field():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emit, self.trans = nn.Linear(5, 4), nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            scores = self.emit(x)
            alpha = scores[:, 0]
            for t in range(1, x.shape[1]):
                alpha = torch.logsumexp(alpha.unsqueeze(2) + self.trans, dim=1) + scores[:, t]
            return torch.logsumexp(alpha, dim=1)

    return {"model": M(), "batch": torch.randn(4, 6, 5), "loss_fn": lambda out: out.mean()}


@correct
def weighted_samples():
    weight, goal = torch.rand(6), torch.randn(6)
    return {
        "model": nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0)), "batch": torch.randn(6, 5),
        "loss_fn": lambda out: (weight * (out - goal) ** 2).sum() / weight.sum(),
    }  # fmt: skip


@correct
def focal_loss():
    def loss(out):
        plain = F.cross_entropy(out, Y4, reduction="none")
        return ((1 - torch.exp(-plain)).detach() ** 2 * plain).mean()

    return {"model": nn.Linear(5, 3), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def prototypes():
    class M(Seq):
        def forward(self, support, query):
            centre = self.enc(support).mean(1)
            return -((self.enc(query)[:, None] - centre[None]) ** 2).sum(-1)

    return {"model": M(enc=nn.Linear(5, 6)), "batch": (torch.randn(3, 4, 5), torch.randn(7, 5)), "loss_fn": lambda o: F.cross_entropy(o, torch.arange(7) % 3)}


@correct
def stop_gradient_twins():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.f, self.h = nn.Linear(5, 6), nn.Linear(6, 6)

        def forward(self, a, b):
            x, y = self.f(a), self.f(b)
            return -(F.cosine_similarity(self.h(x), y.detach()).mean() + F.cosine_similarity(self.h(y), x.detach()).mean()) / 2

    x = torch.randn(6, 5)
    return {"model": M(), "batch": (x, x + 0.1 * torch.randn(6, 5))}


@correct
def several_tasks_one_at_a_time():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 6)
            self.heads = nn.ModuleDict({"a": nn.Linear(6, 3), "b": nn.Linear(6, 2)})

        def forward(self, x, task="a"):
            return self.heads[task](self.body(x).relu())

    return {"model": M(), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def auxiliary_output_not_in_the_loss():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.main, self.extra = nn.Linear(5, 6), nn.Linear(6, 3), nn.Linear(6, 2)

        def forward(self, x):
            h = self.body(x).relu()
            return self.main(h), self.extra(h)

    return {"model": M(), "batch": torch.randn(4, 5), "loss_fn": lambda out: F.cross_entropy(out[0], Y4)}


@correct
def custom_function():
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    class M(Seq):
        def forward(self, x):
            return self.two(Cube.apply(self.one(x)))

    return {"model": M(one=nn.Linear(5, 6), two=nn.Linear(6, 3)), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def checkpointed():
    class M(Seq):
        def forward(self, x):
            return self.two(checkpoint(lambda z: self.one(z).relu(), x, use_reentrant=False))

    return {"model": M(one=nn.Linear(5, 6), two=nn.Linear(6, 3)), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def one_hot_by_index():
    class M(Seq):
        def forward(self, x, group):
            flags = torch.zeros(x.shape[0], 3).scatter_(1, group[:, None], 1.0)
            seen = torch.zeros(3)
            seen[group] = 1.0
            return self.out(torch.cat([x, flags * seen], 1))

    return {"model": M(out=nn.Linear(8, 3)), "batch": (torch.randn(4, 5), torch.tensor([0, 1, 1, 2])), "loss_fn": ce(Y4)}


@correct
def slot_attention():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.slots = nn.Parameter(torch.randn(6, 8))
            self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x):
            attn = (self.k(x) @ self.slots.T).softmax(-1)
            attn = attn / attn.sum(1, keepdim=True)
            return attn.transpose(1, 2) @ self.v(x)

    return {"model": M(), "batch": torch.randn(3, 6, 8)}


@correct
def linear_attention():
    class M(Seq):
        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return q.softmax(-1) @ (k.softmax(1).transpose(1, 2) @ v)

    return {"model": M(qkv=nn.Linear(6, 18)), "batch": torch.randn(3, 6, 6)}


@correct
def soft_targets_and_distillation():
    goal = torch.softmax(torch.randn(4, 3), -1)

    def loss(out):
        return F.cross_entropy(out, goal) + F.kl_div(F.log_softmax(out / 2, -1), goal, reduction="batchmean") * 4

    return {"model": nn.Linear(5, 3), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def log_of_softmax():
    return {"model": nn.Linear(5, 3), "batch": torch.randn(4, 5), "loss_fn": lambda out: F.nll_loss(torch.log(F.softmax(out, 1)), Y4)}


@correct
def multi_label():
    goal = (torch.rand(4, 3) > 0.5).float()
    return {"model": nn.Linear(5, 3), "batch": torch.randn(4, 5), "loss_fn": nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0])), "target": goal}


@correct
def takes_the_batch_as_a_dict():
    class M(Seq):
        def forward(self, batch):
            return {"logits": [self.out(batch["x"])], "extra": {"norm": batch["x"].norm(dim=1)}}

    return {"model": M(out=nn.Linear(5, 3)), "batch": {"x": torch.randn(4, 5)}, "loss_fn": lambda out: F.cross_entropy(out["logits"][0], Y4)}


@dataclasses.dataclass
class Result:
    logits: torch.Tensor
    hidden: list


@correct
def returns_a_dataclass():
    class M(Seq):
        def forward(self, x, *, scale):
            h = self.one(x)
            return Result(self.two(h.relu()) * scale, [h, (h, None)])

    model = M(one=nn.Linear(5, 6), two=nn.Linear(6, 3))
    return {"model": model, "batch": {"x": torch.randn(4, 5), "scale": 2.0}, "loss_fn": lambda out: F.cross_entropy(out.logits, Y4)}


@correct
def carries_a_state():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.GRUCell(5, 6), nn.Linear(6, 3)
            self.state, self.history = None, []

        def forward(self, x):
            self.state = self.cell(x, self.state).detach() if self.state is not None else torch.zeros(x.shape[0], 6)
            h = self.cell(x, self.state)
            self.history.append(float(h.mean()))
            return self.out(h)

    return {"model": M(), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def additive_mask():
    class M(Seq):
        def forward(self, x, bias, valid):
            h = self.emb(x)
            q, k, v = self.qkv(h).chunk(3, -1)
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[:, 0])
            return self.out((h * valid[..., None]).sum(1) / valid.sum(1, keepdim=True))

    x, _, valid = ids()
    bias = torch.zeros(4, 1, 1, 7).masked_fill(~valid[:, None, None], float("-inf"))
    return {"model": M(emb=nn.Embedding(30, 8), qkv=nn.Linear(8, 24), out=nn.Linear(8, 3)), "batch": (x, bias, valid), "loss_fn": ce(Y4)}


@correct
def left_padding():
    class M(Seq):
        def forward(self, ids, mask):
            n = ids.shape[1]
            position = (mask.long().cumsum(1) - 1).clamp_min(0)
            q, k, v = self.qkv(self.emb(ids) + self.pos(position)).chunk(3, -1)
            see = mask[:, None, :] & torch.ones(n, n, dtype=torch.bool).tril()
            see = see | torch.eye(n, dtype=torch.bool)
            return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=see)[:, -1])

    x, _, valid = ids()
    model = M(emb=nn.Embedding(30, 8), pos=nn.Embedding(16, 8), qkv=nn.Linear(8, 24), out=nn.Linear(8, 3))
    return {"model": model, "batch": (x.flip(1), valid.flip(1)), "loss_fn": ce(Y4)}


@correct
def batch_statistics_by_hand():
    class M(Seq):
        def forward(self, x):
            h = self.one(x)
            if self.training:
                h = (h - h.mean(0)) / (h.std(0) + 1e-5)
            return self.two(h.relu())

    return {"model": M(one=nn.Linear(5, 6), two=nn.Linear(6, 3)), "batch": torch.randn(6, 5), "loss_fn": lambda o: F.cross_entropy(o, torch.arange(6) % 3)}


@correct
def spectral_norm():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 6)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 3)))
    return {"model": model, "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def zero_started_residual():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.out = nn.Linear(5, 8), nn.Linear(8, 5), nn.Linear(5, 3)
            nn.init.zeros_(self.two.weight)
            nn.init.zeros_(self.two.bias)
            self.gate = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return self.out(x + self.gate * torch.tanh(x) + self.two(self.one(x).relu()))

    return {"model": M(), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def tied_and_looped_weights():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.layer = nn.Embedding(30, 8), nn.Linear(8, 8)
            self.out = nn.Linear(8, 30, bias=False)
            self.out.weight = self.emb.weight
            nn.init.normal_(self.emb.weight, std=0.1)

        def forward(self, x):
            h = self.emb(x)
            for _ in range(3):
                h = h + torch.tanh(self.layer(h))
            return self.out(h)

    x = torch.randint(0, 30, (4, 9))
    return {"model": M(), "batch": x[:, :-1], "loss_fn": lambda o: F.cross_entropy(o.reshape(-1, 30), x[:, 1:].reshape(-1))}


@correct
def same_activation_object():
    act = nn.ReLU()
    return {"model": nn.Sequential(nn.Linear(5, 6), act, nn.Linear(6, 6), act, nn.Linear(6, 3)), "batch": torch.randn(4, 5), "loss_fn": ce(Y4)}


@correct
def gradient_penalty():
    class M(Seq):
        def forward(self, x):
            with torch.enable_grad():
                x = x.clone().requires_grad_()
                y = self.two(self.one(x).tanh())
                (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            return y.mean() + ((g.norm(dim=1) - 1) ** 2).mean()

    return {"model": M(one=nn.Linear(5, 6), two=nn.Linear(6, 1)), "batch": torch.randn(4, 5)}


@correct
def images_normalised_inside():
    class M(Seq):
        def forward(self, images):
            x = images.float() / 255
            return self.out(self.conv((x - 0.5) / 0.2).relu().mean((2, 3)))

    return {"model": M(conv=nn.Conv2d(3, 4, 3), out=nn.Linear(4, 3)), "batch": torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), "loss_fn": ce(Y4)}


@correct
def segmentation():
    goal = torch.randint(0, 4, (2, 8, 8))
    goal[0, 0] = 255
    return {
        "model": nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        "batch": torch.randn(2, 3, 8, 8), "loss_fn": lambda out: F.cross_entropy(out, goal, ignore_index=255),
    }  # fmt: skip


@correct
def connectionist_temporal():
    class M(Seq):
        def forward(self, x):
            return self.out(self.rnn(x)[0]).log_softmax(-1)

    def loss(out):
        return F.ctc_loss(out.transpose(0, 1), torch.randint(1, 6, (4, 3)), torch.full((4,), 9), torch.full((4,), 3))

    return {"model": M(rnn=nn.GRU(5, 8, batch_first=True, bidirectional=True), out=nn.Linear(16, 6)), "batch": torch.randn(4, 9, 5), "loss_fn": loss}


@correct
def triplets():
    def loss(z):
        a, p, n = z.chunk(3)
        return F.relu((a - p).pow(2).sum(1) - (a - n).pow(2).sum(1) + 0.2).mean() + 0.1 * z.norm(dim=1).mean()

    return {"model": nn.Linear(5, 6), "batch": torch.randn(6, 5), "loss_fn": loss}


@correct
def mixed_up_samples():
    lam, order = 0.3, torch.tensor([2, 0, 3, 1])

    def loss(out):
        return lam * F.cross_entropy(out, Y4) + (1 - lam) * F.cross_entropy(out, Y4[order])

    x = torch.randn(4, 5)
    return {"model": nn.Linear(5, 3), "batch": lam * x + (1 - lam) * x[order], "loss_fn": loss}


@correct
def two_runs_of_a_sequence_to_sequence_loop():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(20, 6)
            self.enc, self.dec = nn.GRU(6, 6, batch_first=True), nn.GRUCell(6, 6)
            self.out = nn.Linear(6, 20)

        def forward(self, src, tgt):
            _, h = self.enc(self.emb(src))
            h, outs = h[0], []
            for t in range(tgt.shape[1]):
                h = self.dec(self.emb(tgt[:, t]), h)
                outs.append(self.out(h))
            return torch.stack(outs, dim=1)

    src, tgt = torch.randint(0, 20, (4, 6)), torch.randint(0, 20, (4, 8))
    loss = lambda out: F.cross_entropy(out.transpose(1, 2), tgt[:, 1:])  # noqa: E731
    return {"model": M(), "batch": (src, tgt[:, :-1]), "loss_fn": loss}


@correct
def masked_token_loss():
    class M(Seq):
        def forward(self, x, mask):
            h = self.enc(self.emb(x), src_key_padding_mask=~mask)
            return self.out(h)

    x, _, mask = ids()
    goal = torch.randint(0, 5, (4, 7))

    def loss(out):
        each = F.cross_entropy(out.transpose(1, 2), goal, reduction="none")
        return (each * mask).sum() / mask.sum()

    model = M(emb=nn.Embedding(30, 8), enc=nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), out=nn.Linear(8, 5))
    return {"model": model, "batch": (x, mask), "loss_fn": loss}


@correct
def intersection_over_union():
    class M(Seq):
        def forward(self, x):
            return self.out(x).sigmoid()

    anchors = torch.rand(4, 4)

    def loss(boxes):
        left = torch.max(boxes[:, None, :2], anchors[None, :, :2])
        right = torch.min(boxes[:, None, 2:] + 1, anchors[None, :, 2:] + 1)
        area = (right - left).clamp(min=0).prod(-1)
        cost = torch.cdist(boxes, anchors, p=1) - area
        return cost.min(dim=1).values.mean()

    return {"model": M(out=nn.Linear(5, 4)), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def teacher_hidden_in_a_list():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.student = nn.Linear(5, 3)
            self.hidden = [nn.Linear(5, 3)]

        def forward(self, x):
            with torch.no_grad():
                goal = self.hidden[0](x)
            return F.mse_loss(self.student(x), goal)

    return {"model": M(), "batch": torch.randn(4, 5)}


@correct
def loss_with_its_own_weights():
    log_variance = nn.Parameter(torch.zeros(2))

    def loss(out):
        parts = torch.stack([F.cross_entropy(out, Y4), out.pow(2).mean()])
        return (parts * torch.exp(-log_variance) + log_variance).sum()

    return {"model": nn.Linear(5, 3), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def as_many_components_as_samples():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.centre, self.log_scale, self.weight = (nn.Parameter(torch.randn(6)) for _ in range(3))
            self.line = nn.Linear(4, 1)

        def forward(self, x):
            z = (self.line(x) - self.centre) / self.log_scale.exp()
            return -torch.logsumexp(self.weight.log_softmax(0) - 0.5 * z**2 - self.log_scale, 1).mean()

    return {"model": M(), "batch": torch.randn(6, 4)}


@correct
def as_many_frequencies_as_samples():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(18, 1)
            self.register_buffer("frequencies", torch.randn(6))
            self.shifts = torch.randn(6)

        def forward(self, t):
            angle = t * self.frequencies + t * self.shifts
            steps = t * torch.linspace(0, 1, 6)
            return self.out(torch.cat([angle.sin(), angle.cos(), steps], -1))

    return {"model": M(), "batch": torch.rand(6, 1), "loss_fn": lambda out: out.pow(2).mean()}


@correct
def class_weights_as_many_as_samples():
    weights = torch.rand(4)
    y = torch.randint(0, 2, (4, 4)).float()

    def loss(out):
        return (F.binary_cross_entropy_with_logits(out, y, reduction="none") * weights).mean()

    return {"model": nn.Linear(5, 4), "batch": torch.randn(4, 5), "loss_fn": loss}


@correct
def attention_over_prefix():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.prompt = nn.Embedding(30, 16), nn.Parameter(torch.randn(3, 16))
            self.layer, self.out = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 3)

        def forward(self, x, mask):
            h = torch.cat([self.prompt.expand(len(x), -1, -1), self.emb(x)], 1)
            hidden = torch.cat([torch.zeros(len(x), 3, dtype=torch.bool), ~mask], 1)
            return self.out(self.layer(h, src_key_padding_mask=hidden)[:, :3].mean(1))

    x, _, valid = ids()
    return {"model": M(), "batch": (x, valid), "loss_fn": ce(Y4)}


@correct
def positions_mixed_last():
    """The last layer runs along the positions, of which there are as many as classes."""

    class M(Seq):
        def forward(self, x):
            return self.along(self.features(x).transpose(1, 2).contiguous())

    y = torch.randint(0, 7, (4, 7))
    return {"model": M(features=nn.Linear(5, 7), along=nn.Linear(7, 7)), "batch": torch.randn(4, 7, 5), "loss_fn": ce(y)}


@correct
def as_many_classes_as_positions():
    class M(Seq):
        def forward(self, x):
            return self.out(self.emb(x)).mT

    y = torch.randint(0, 7, (4, 7))
    return {"model": M(emb=nn.Embedding(30, 8), out=nn.Linear(8, 7)), "batch": torch.randint(0, 30, (4, 7)), "loss_fn": ce(y)}


@correct
def positive_features_zeroed_and_maximised():
    class M(Seq):
        def forward(self, x, mask):
            return self.out((self.mid(self.emb(x)).relu() * mask[..., None]).amax(1))

    x, _, mask = ids()
    return {"model": M(emb=nn.Embedding(30, 8), mid=nn.Linear(8, 8), out=nn.Linear(8, 3)), "batch": (x, mask), "loss_fn": ce(Y4)}


@correct
def lengths_of_the_last_axis():
    class M(Seq):
        def forward(self, mels, mel_lengths):
            mask = (torch.arange(mels.shape[2], device=mels.device)[None] < mel_lengths[:, None])[:, None]
            return self.out((self.conv(mels * mask).relu() * mask).sum(2) / mel_lengths[:, None])

    return {"model": M(conv=nn.Conv1d(30, 8, 3, padding=1), out=nn.Linear(8, 3)), "batch": (torch.randn(4, 30, 20), torch.tensor([20, 12, 15, 9])), "loss_fn": ce(Y4)}


@correct
def codebook_kept_in_a_parameter():
    class M(Seq):
        def __init__(self, **layers):
            super().__init__(**layers)
            self.book = nn.Parameter(torch.randn(8, 4), requires_grad=False)

        def forward(self, x):
            z = self.enc(x)
            near = torch.cdist(z, self.book).argmin(1)
            if self.training:
                chosen = F.one_hot(near, 8).float()
                self.book.data.mul_(0.99).add_(0.01 * (chosen.T @ z.detach()) / chosen.sum(0)[:, None].clamp(min=1))
            q = self.book[near]
            return self.dec(z + (q - z).detach()), z, q

    x = torch.randn(6, 10)
    loss = lambda out: F.mse_loss(out[0], x) + F.mse_loss(out[1], out[2].detach())  # noqa: E731
    return {"model": M(enc=nn.Linear(10, 4), dec=nn.Linear(4, 10)), "batch": x, "loss_fn": loss}


@correct
def empty_rows_that_the_mean_takes_care_of():
    class M(Seq):
        def forward(self, x, lengths):
            valid = torch.arange(x.shape[1]) < lengths[:, None]
            return self.out((x * valid[..., None]).sum(1) / lengths.clamp_min(1)[:, None])

    return {"model": M(out=nn.Linear(5, 3)), "batch": (torch.randn(4, 7, 5), torch.tensor([7, 0, 3, 5])), "loss_fn": ce(Y4)}


@correct
def missing_values_that_the_model_fills():
    class M(Seq):
        def forward(self, x):
            missing = x.isnan()
            return self.out(torch.cat([torch.where(missing, torch.zeros_like(x), x), missing.float()], 1))

    x = torch.randn(4, 6)
    x[1, 2] = torch.nan
    return {"model": M(out=nn.Linear(12, 3)), "batch": x, "loss_fn": ce(Y4)}


@correct
def targets_that_are_missing_are_left_out():
    y = torch.randn(4, 3)
    y[2, 1] = torch.nan
    known = ~y.isnan()
    return {"model": nn.Linear(6, 3), "batch": torch.randn(4, 6), "loss_fn": lambda out: F.mse_loss(out[known], y[known])}


@correct
def label_map_as_input():
    return {"model": nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(144, 3)), "batch": torch.randint(0, 21, (4, 1, 8, 8)).float(), "loss_fn": ce(Y4)}


@correct
def distance_between_two_sets():
    real = torch.randn(8)
    loss = lambda made: 2 * (made[:, None] - real).abs().mean() - (made[:, None] - made).abs().mean()  # noqa: E731
    return {"model": nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)), "batch": torch.randn(8, 3), "loss_fn": loss}


@correct
def optional_input_that_is_not_given():
    class M(Seq):
        def forward(self, x, kinds=None):
            h = self.emb(x)
            if kinds is not None:
                h = h + self.kind(kinds)
            return self.out(h.mean(1))

    return {"model": M(emb=nn.Embedding(30, 8), kind=nn.Embedding(2, 8), out=nn.Linear(8, 3)), "batch": torch.randint(0, 30, (4, 7)), "loss_fn": ce(Y4)}


@correct
def set_up_by_the_first_batch():
    class ActNorm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
            self.register_buffer("ready", torch.tensor(False))

        def forward(self, x):
            if not self.ready:
                with torch.no_grad():
                    self.shift.copy_(-x.mean(0))
                    self.scale.copy_(1 / x.std(0))
                    self.ready.fill_(True)
            return (x + self.shift) * self.scale

    return {"model": nn.Sequential(nn.Linear(6, 8), ActNorm(8), nn.Tanh(), nn.Linear(8, 3)), "batch": torch.randn(4, 6), "loss_fn": ce(Y4)}


@correct
def forces_from_an_energy():
    class M(Seq):
        def forward(self, positions):
            positions = positions.requires_grad_()
            energy = self.out(self.mid(positions).tanh()).sum((1, 2))
            return energy, -torch.autograd.grad(energy.sum(), positions, create_graph=True)[0]

    loss = lambda out: out[0].pow(2).mean() + out[1].pow(2).mean()  # noqa: E731
    return {"model": M(mid=nn.Linear(3, 16), out=nn.Linear(16, 1)), "batch": torch.randn(4, 5, 3), "loss_fn": loss}


@correct
def as_many_clusters_as_nodes():
    class M(Seq):
        def forward(self, x, adj):
            share = (adj @ self.assign(x)).softmax(-1)  # each node's share of the clusters: no attention
            return self.out(torch.relu(share.transpose(1, 2) @ self.mid(x)).mean(1))

    return {"model": M(assign=nn.Linear(8, 7), mid=nn.Linear(8, 8), out=nn.Linear(8, 3)), "batch": (torch.randn(4, 7, 8), torch.rand(4, 7, 7)), "loss_fn": ce(Y4)}


@correct
def the_last_positions_distribution_is_picked():
    class M(Seq):
        def forward(self, x, last):
            return self.out(self.rnn(x)[0]).log_softmax(-1).gather(1, last[:, None, None].expand(-1, 1, 3)).squeeze(1)

    batch = torch.randn(4, 7, 5), torch.tensor([6, 3, 4, 2])
    return {"model": M(rnn=nn.GRU(5, 8, batch_first=True), out=nn.Linear(8, 3)), "batch": batch, "loss_fn": lambda out: F.nll_loss(out, Y4)}


@correct
def attention_over_positions_averages_distributions():
    class M(Seq):
        def forward(self, x, shares):
            return self.out((self.score(x).softmax(1).expand_as(shares) * shares).sum(1))

    batch = torch.randn(4, 7, 6), torch.rand(4, 7, 6).softmax(-1)
    return {"model": M(score=nn.Linear(6, 1), out=nn.Linear(6, 3)), "batch": batch, "loss_fn": ce(Y4)}


@correct
def a_bag_of_instances_with_one_label():
    class M(Seq):
        def forward(self, bag):
            share = self.score(bag.tanh()).softmax(0)
            return self.out((share * bag).sum(0)), share

    loss = lambda out: F.binary_cross_entropy_with_logits(out[0], torch.ones(1))  # noqa: E731
    return {"model": M(score=nn.Linear(6, 1), out=nn.Linear(6, 1)), "batch": torch.randn(23, 6), "loss_fn": loss}


@correct
def columns_with_a_table_each():
    class M(Seq):
        def forward(self, kinds):
            return self.out(torch.cat([table(kinds[:, i]) for i, table in enumerate(self.tables)], 1))

    kinds = torch.stack([torch.tensor([4, 1, 0, 3]), torch.tensor([0, 2, 1, 1])], 1)
    return {"model": M(tables=nn.ModuleList([nn.Embedding(5, 4), nn.Embedding(3, 4)]), out=nn.Linear(8, 3)), "batch": kinds, "loss_fn": ce(Y4)}


@correct
def forces_by_a_transform():
    class M(Seq):
        def energy(self, positions):
            return self.out(self.hidden(positions).tanh()).sum()

        def forward(self, positions):
            return -torch.func.grad(self.energy)(positions)

    forces = torch.randn(5, 3)
    return {"model": M(hidden=nn.Linear(3, 8), out=nn.Linear(8, 1)), "batch": torch.randn(5, 3), "loss_fn": lambda out: F.mse_loss(out, forces)}


@correct
def ranges_watched_for_a_quantisation():
    from torch.ao import quantization

    model = nn.Sequential(quantization.QuantStub(), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return {"model": quantization.prepare_qat(model), "batch": torch.randn(4, 6), "loss_fn": ce(Y4)}
