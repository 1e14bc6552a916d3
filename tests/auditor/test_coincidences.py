"""Sizes that happen to be equal (batch, length, width, classes): a right model is not accused for it, and a wrong one is found all the same.

The axes of a tensor carry no names; what is told from sizes alone must hold for any of them.
"""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchsleuth

SEEDS = 24


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, hidden):
        b, t, d = x.shape
        q, k, v = (layer(x).view(b, t, self.heads, d // self.heads).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(d // self.heads)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Encoder(nn.Module):
    def __init__(self, sizes: Sizes, pool: str, bug: str = "") -> None:
        super().__init__()
        self.pool, self.bug = pool, bug
        self.emb = nn.Embedding(sizes.vocabulary, sizes.width)
        self.attention = Attention(sizes.width, sizes.heads)
        self.norm, self.out = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, sizes.classes)

    def forward(self, ids, mask):
        x = self.emb(ids)
        x = self.norm(x + self.attention(x, None if self.bug == "mask" else ~mask[:, None, None, :]))
        if self.pool == "mean":
            x = x.mean(1) if self.bug == "mean" else (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        elif self.pool == "maximum":
            x = x.masked_fill(~mask[..., None], -1e9).amax(1)
        elif self.pool == "last":
            x = x[torch.arange(len(x)), mask.sum(1) - 1]
        return self.out(x)


class Language(nn.Module):
    def __init__(self, sizes: Sizes, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.emb, self.place = nn.Embedding(sizes.vocabulary, sizes.width), nn.Parameter(torch.randn(sizes.length, sizes.width))
        self.attention = Attention(sizes.width, sizes.heads)
        self.out = nn.Linear(sizes.width, sizes.vocabulary)

    def forward(self, ids):
        x = self.emb(ids) + self.place[: ids.size(1)]
        later = torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return self.out(x + self.attention(x, None if self.bug == "later" else later))


class Recurrent(nn.Module):
    def __init__(self, sizes: Sizes, kind: str, tags: bool) -> None:
        super().__init__()
        self.tags = tags
        self.emb = nn.Embedding(sizes.vocabulary, sizes.width, padding_idx=0)
        self.rnn = getattr(nn, kind)(sizes.width, sizes.width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * sizes.width, sizes.classes)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(ids), lengths, batch_first=True, enforce_sorted=False)
        h, last = self.rnn(packed)
        if self.tags:
            return self.out(nn.utils.rnn.pad_packed_sequence(h, batch_first=True, total_length=ids.size(1))[0])
        last = last[0] if isinstance(last, tuple) else last
        return self.out(torch.cat([last[-2], last[-1]], 1))


class Regression(nn.Module):
    def __init__(self, inputs: int, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.net = nn.Sequential(nn.Linear(inputs, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, x):
        return self.net(x) if self.bug == "column" else self.net(x).squeeze(1)


class Translation(nn.Module):
    def __init__(self, sizes: Sizes, bug: str = "") -> None:
        super().__init__()
        self.bug, width = bug, sizes.width
        self.emb = nn.Embedding(sizes.vocabulary, width)
        self.reader, self.writer = nn.GRU(width, width, batch_first=True), nn.GRU(width, width, batch_first=True)
        self.mix, self.out = nn.Linear(2 * width, width), nn.Linear(width, sizes.vocabulary)

    def forward(self, source, lengths, goal):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(source), lengths, batch_first=True, enforce_sorted=False)
        read, state = self.reader(packed)
        read, _ = nn.utils.rnn.pad_packed_sequence(read, batch_first=True, total_length=source.size(1))
        written, _ = self.writer(self.emb(goal), state)
        scores = written @ read.transpose(1, 2)
        if self.bug != "mask":
            scores = scores.masked_fill((torch.arange(source.size(1)) >= lengths[:, None])[:, None], -1e9)
        return self.out(torch.tanh(self.mix(torch.cat([written, scores.softmax(-1) @ read], -1))))


class Forecast(nn.Module):
    def __init__(self, sizes: Sizes, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.conv, self.out = nn.Conv1d(sizes.width, 8, 3), nn.Linear(8, sizes.width)

    def forward(self, x):
        if self.bug == "centred":
            return self.out(F.relu(F.conv1d(x.transpose(1, 2), self.conv.weight, self.conv.bias, padding=1)).transpose(1, 2))
        return self.out(F.relu(self.conv(F.pad(x.transpose(1, 2), (2, 0)))).transpose(1, 2))


class Towers(nn.Module):
    def __init__(self, sizes: Sizes, bug: str = "") -> None:
        super().__init__()
        self.bug = bug
        self.users, self.items = nn.Embedding(20, sizes.width), nn.Embedding(20, sizes.width)
        self.layer = nn.Linear(sizes.width, sizes.width)

    def forward(self, users, items):
        left = F.normalize(self.layer(self.users(users)), dim=0 if self.bug == "axis" else 1)
        return left @ F.normalize(self.items(items), dim=1).T / 0.1


class Sizes:
    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.batch, self.length, self.width = chance.choice([2, 4, 6, 8, 12]), chance.choice([4, 6, 8, 12]), chance.choice([4, 8, 12])
        self.heads, self.vocabulary = chance.choice([2, 4]), chance.choice([8, 12, 13, 30])
        self.classes = chance.choice([2, 4, 8, self.length, self.batch])
        self.pool, self.kind, self.tags = chance.choice(["mean", "maximum", "last", "none"]), chance.choice(["GRU", "LSTM", "RNN"]), chance.random() < 0.5

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items())


def padded(sizes: Sizes):
    lengths = torch.randint(1, sizes.length + 1, (sizes.batch,))
    lengths[0], lengths[1] = sizes.length, max(1, sizes.length // 2)
    mask = torch.arange(sizes.length)[None] < lengths[:, None]
    return torch.randint(1, sizes.vocabulary, (sizes.batch, sizes.length)) * mask, mask, lengths


def goal(sizes: Sizes, mask, each: bool):
    labels = torch.randint(0, sizes.classes, (sizes.batch, sizes.length)).masked_fill(~mask, -100)
    if each:
        return lambda out: F.cross_entropy(out.transpose(1, 2), labels)
    return lambda out: F.cross_entropy(out, labels[:, 0])


def encoder(sizes, bug=""):
    ids, mask, _ = padded(sizes)
    pool = "mean" if bug == "mean" else sizes.pool
    return torchsleuth.audit(Encoder(sizes, pool, bug), (ids, mask), loss_fn=goal(sizes, mask, pool == "none"))


def language(sizes, bug=""):
    ids = torch.randint(0, sizes.vocabulary, (sizes.batch, sizes.length))
    return torchsleuth.audit(Language(sizes, bug), ids[:, :-1], loss_fn=lambda out: F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten()))


def recurrent(sizes):
    ids, mask, lengths = padded(sizes)
    return torchsleuth.audit(Recurrent(sizes, sizes.kind, sizes.tags), (ids, lengths), loss_fn=goal(sizes, mask, sizes.tags))


def regression(sizes, bug=""):
    inputs, targets = torch.randn(sizes.batch, sizes.length), torch.randn(sizes.batch)
    return torchsleuth.audit(Regression(sizes.length, bug), inputs, loss_fn=lambda out: ((out - targets) ** 2).mean())


def translation(sizes, bug=""):
    (source, _, lengths), (goal, _, _) = padded(sizes), padded(sizes)
    goal = torch.cat([torch.ones(sizes.batch, 1, dtype=torch.long), goal], 1)
    return torchsleuth.audit(
        Translation(sizes, bug), (source, lengths, goal[:, :-1]), loss_fn=lambda out: F.cross_entropy(out.flatten(0, 1), goal[:, 1:].flatten(), ignore_index=0)
    )


def forecast(sizes, bug=""):
    series = torch.randn(sizes.batch, sizes.length + 1, sizes.width)
    return torchsleuth.audit(Forecast(sizes, bug), series[:, :-1], loss_fn=lambda out: F.mse_loss(out, series[:, 1:]))


def towers(sizes, bug=""):
    users, items = torch.randint(0, 20, (sizes.batch,)), torch.randperm(20)[: sizes.batch]
    return torchsleuth.audit(Towers(sizes, bug), (users, items), loss_fn=lambda out: F.cross_entropy(out, torch.arange(sizes.batch)))


def time_first(sizes):
    """As many positions as samples, at times: nobody can say which is which."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.LSTM(5, sizes.width), nn.Linear(sizes.width, sizes.classes)

        def forward(self, x):
            return self.out(self.rnn(x)[0][-1])

    labels = torch.randint(0, sizes.classes, (sizes.batch,))
    return torchsleuth.audit(Model(), torch.randn(sizes.length, sizes.batch, 5), loss_fn=lambda out: F.cross_entropy(out, labels))


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("build", [encoder, language, recurrent, regression, translation, forecast, towers, time_first])
def test_right_models_of_coinciding_sizes(build):
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        sizes = Sizes(seed)
        report = build(sizes)
        assert not report.diagnoses, (str(sizes), [(d.rule, d.title, d.facts) for d in report.diagnoses])


@pytest.mark.parametrize("build, bug, rule, source", [
    (encoder, "mask", "padding-leak", "scores.softmax(-1)"), (encoder, "mean", "padding-leak", "x.mean(1)"),
    (language, "later", "causal-leak", "scores.softmax(-1)"), (regression, "column", "silent-broadcast", "out - targets"),
    (translation, "mask", "padding-leak", "scores.softmax(-1)"), (forecast, "centred", "causal-leak", "F.conv1d("),
    (towers, "axis", "batch-mixing", "F.normalize(self.layer(self.users(users)), dim=0"),
])  # fmt: skip
def test_wrong_models_of_coinciding_sizes(build, bug, rule, source):
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        sizes = Sizes(seed)
        report = build(sizes, bug)
        found, *more = report.diagnoses
        assert not more, (str(sizes), [(d.title, d.facts, [c.source for c in d.culprits]) for d in report.diagnoses])
        told = (str(sizes), found.title, [f.text for f in found.facts], [c.source for c in found.culprits])
        assert found.rule == rule, told
        assert any(source in c.source for c in found.culprits), told


class Highest(nn.Module):
    """Zeros stand at padded positions, and are larger than the real values of every feature."""

    def __init__(self, width: int, form: str):
        super().__init__()
        self.emb, self.out, self.form = nn.Embedding(30, width), nn.Linear(width, 2), form
        nn.init.uniform_(self.emb.weight, -2.0, -1.0)

    def forward(self, ids, mask):
        h = self.emb(ids) * mask[..., None]
        if self.form == "max":
            return self.out(h.max(1).values)
        if self.form == "max, kept":
            return self.out(h.max(dim=1, keepdim=True)[0].squeeze(1))
        if self.form == "amax":
            return self.out(h.amax(dim=-2))
        if self.form == "pool":
            return self.out(F.adaptive_max_pool1d(h.transpose(1, 2), 1).squeeze(-1))
        return self.out(h.masked_fill(~mask[..., None], -torch.inf).max(1).values)


@pytest.mark.parametrize("form", ["max", "max, kept", "amax", "pool", "filled"])
def test_a_maximum_over_padding_whatever_the_sizes(form: str) -> None:
    for samples, length, width in itertools.product((3, 4), (4, 6), (4, 6)):
        mask = torch.arange(length)[None] < torch.tensor([length, *range(1, samples)])[:, None]
        ids = torch.randint(1, 30, (samples, length)).masked_fill(~mask, 0)
        found = [d.title for d in torchsleuth.audit(Highest(width, form), (ids, mask)).diagnoses]
        assert found == (["padded positions hold zero, and zero wins the maximum"] if form != "filled" else []), (samples, length, width)
