"""Planted bugs in what a loss is given: shapes that stretch, operands that are no (log-)probabilities, data that is not finite."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from planted import planted
from torch import nn


class Scores(nn.Module):
    def __init__(self, outputs=4):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, outputs)

    def forward(self, x):
        return self.head(self.body(x).relu())


def data(n=10, classes=4):
    return torch.randn(n, 6), torch.randint(0, classes, (n,))


@planted("condition-of-where", "silent-broadcast")
def condition_of_where(bug):
    def focal(scores, labels):
        p = scores.sigmoid()
        right = torch.where(labels == 1, p, 1 - p)  # culprit: condition-of-where
        return (-((1 - right) ** 2) * right.clamp_min(1e-6).log()).mean()

    labels = (torch.arange(10) % 2).float()
    return {"model": Scores(1), "batch": (torch.randn(10, 6), labels if bug else labels[:, None]), "loss_fn": focal}


@planted("two-terms-of-one-line", "silent-broadcast")
def two_terms_of_one_line(bug):
    def entropy(scores, y):
        p = scores.sigmoid()
        return -(y * p.log() + (1 - y) * (1 - p).log()).mean()  # culprit: two-terms-of-one-line

    y = (torch.arange(10) % 2).float()
    return {"model": Scores(1), "batch": (torch.randn(10, 6), y if bug else y[:, None]), "loss_fn": entropy}


@planted("softmax-by-hand", "activation-before-loss")
def softmax_by_hand(bug):
    class Model(Scores):
        def forward(self, x):
            e = super().forward(x).exp()
            return e / e.sum(1, keepdim=True) if bug else e.log()  # culprit: softmax-by-hand

    return {"model": Model(), "batch": data(), "loss_fn": nn.CrossEntropyLoss()}


@planted("log-softmax-over-samples", "softmax-axis")
def log_softmax_over_samples(bug):
    class Model(Scores):
        def forward(self, x):
            return F.log_softmax(super().forward(x), dim=0 if bug else 1)  # culprit: log-softmax-over-samples

    return {"model": Model(), "batch": data(), "loss_fn": nn.NLLLoss()}


@planted("softmax-over-positions", "softmax-axis")
def softmax_over_positions(bug):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 4)

        def forward(self, x):
            p = self.out(self.rnn(x)[0]).softmax(1 if bug else 2)  # culprit: softmax-over-positions
            return (p + 1e-8).log().transpose(1, 2)

    return {"model": Tagger(), "batch": (torch.randn(3, 7, 6), torch.randint(0, 4, (3, 7))), "loss_fn": nn.NLLLoss()}


@planted("ctc-on-scores", "activation-before-loss")
def ctc_on_scores(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(6, 5)

        def forward(self, x):
            scores = self.out(x).transpose(0, 1)
            return scores if bug else scores.log_softmax(-1)

    def loss(out, labels):
        return F.ctc_loss(out, labels, torch.full((3,), 12), torch.full((3,), 4))  # culprit: ctc-on-scores

    return {"model": Model(), "batch": (torch.randn(3, 12, 6), torch.randint(1, 5, (3, 4))), "loss_fn": loss}


@planted("divergence-exchanged", "activation-before-loss")
def divergence_exchanged(bug):
    def loss(scores, teacher):
        log_q, p = scores.log_softmax(-1), teacher.softmax(-1)  # culprit: divergence-exchanged
        return F.kl_div(p, log_q, reduction="batchmean") if bug else F.kl_div(log_q, p, reduction="batchmean")

    return {"model": Scores(), "batch": (torch.randn(10, 6), torch.randn(10, 4)), "loss_fn": loss}


@planted("divergence-log-target", "activation-before-loss")
def divergence_log_target(bug):
    def loss(scores, teacher):
        return F.kl_div(scores.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=not bug)  # culprit: divergence-log-target

    return {"model": Scores(), "batch": (torch.randn(10, 6), torch.randn(10, 4)), "loss_fn": loss}


@planted("divergence-of-scores", "activation-before-loss")
def divergence_of_scores(bug):
    def loss(scores, teacher):
        return F.kl_div(scores if bug else scores.log_softmax(-1), teacher.softmax(-1), reduction="batchmean")  # culprit: divergence-of-scores

    return {"model": Scores(), "batch": (torch.randn(10, 6), torch.randn(10, 4)), "loss_fn": loss}


@planted("nan-in-the-targets", "not-finite")
def nan_in_the_targets(bug):
    def loss(out, y):
        known = ~y.isnan()
        if not bug:
            out, y = out[known], y[known]
        return ((out - y) ** 2 * known.sum() / known.numel()).mean()  # culprit: nan-in-the-targets

    y = torch.randn(10, 4)
    y[2, 1] = torch.nan
    return {"model": Scores(), "batch": (torch.randn(10, 6), y), "loss_fn": loss}


@planted("scripted-mixing", "batch-mixing")
def scripted_mixing(bug):
    return {"model": torch.jit.script(Centred() if bug else Scores()), "batch": data(), "loss_fn": nn.CrossEntropyLoss()}


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x):
        h = self.head(x)
        return h - h.mean(0)


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.out, self.dim = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3), dim

    def heads(self, x):
        return x.view(*x.shape[:2], 2, 4).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.heads(f(x)) for f in (self.q, self.k, self.v))
        weights = torch.einsum("bhqd,bhkd->bhqk", q, k).div(2).softmax(self.dim)  # culprit: softmax-over-heads
        return self.out(torch.einsum("bhqk,bhkd->bhqd", weights, v).transpose(1, 2).flatten(2).mean(1))


@planted("softmax-over-heads", "softmax-axis")
def softmax_over_heads(bug):
    return {"model": Attention(1 if bug else -1), "batch": (torch.randn(4, 7, 8), torch.arange(4) % 3), "loss_fn": nn.CrossEntropyLoss()}


@planted("queries-by-einsum", "softmax-axis")
def queries_by_einsum(bug):
    return {"model": Attention(-2 if bug else -1), "batch": (torch.randn(4, 7, 8), torch.arange(4) % 3), "loss_fn": nn.CrossEntropyLoss()}


class Tags(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 5)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


@planted("picked-past-the-softmax", "softmax-axis")
def picked_past_the_softmax(bug):
    def loss(scores, tags):
        log_p = F.log_softmax(scores, dim=1 if bug else 2)  # culprit: picked-past-the-softmax
        return -log_p.gather(2, tags.unsqueeze(2)).mean()

    return {"model": Tags(), "batch": (torch.randn(3, 7, 6), torch.randint(0, 5, (3, 7))), "loss_fn": loss}


@planted("one-hot-past-the-softmax", "softmax-axis")
def one_hot_past_the_softmax(bug):
    def loss(scores, tags):
        log_p = (scores.softmax(1 if bug else 2) + 1e-9).log()  # culprit: one-hot-past-the-softmax
        return -(F.one_hot(tags, 5) * log_p).sum(-1).mean()

    return {"model": Tags(), "batch": (torch.randn(3, 7, 6), torch.randint(0, 5, (3, 7))), "loss_fn": loss}


@planted("nothing-to-convert", "silent-broadcast")
def nothing_to_convert(bug):
    """`y.float()` of what is float already is `y` itself, and made by nothing: looking for its maker has to end."""

    def loss(out, y):
        return ((out - y.float()) ** 2).mean()  # culprit: nothing-to-convert

    y = torch.randn(10)
    return {"model": Scores(1), "batch": (torch.randn(10, 6), y if bug else y[:, None]), "loss_fn": loss}


@planted("missing-marked-by-nan", "not-finite")
def missing_marked_by_nan(bug):
    def loss(out, y):
        marked = y.masked_fill(y.abs() > 1, float("nan"))  # on purpose: not here does it go wrong
        known = ~marked.isnan()
        filled = marked if bug else marked.nan_to_num()
        return ((out - filled) ** 2 * known).sum() / known.sum()  # culprit: missing-marked-by-nan

    return {"model": Scores(), "batch": (torch.randn(10, 6), torch.randn(10, 4)), "loss_fn": loss}
