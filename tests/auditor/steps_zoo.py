"""Planted bugs of batches, gradients, losses and steps."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from planted import planted

X = torch.linspace(-1, 1, 6 * 5).sin().view(6, 5)
Y = torch.tensor([0, 1, 2, 1, 0, 2])


def classify(output):
    return F.cross_entropy(output, Y)


def mlp(out=3):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, out))


# -- mixing ----------------------------------------------------------------------------------------


@planted("view-for-transpose", "batch-mixing")
def view_for_transpose(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 6)

        def forward(self, x):
            batch, time, width = x.shape
            if bug:
                x = x.view(time, batch, width)  # culprit: view-for-transpose
            else:
                x = x.transpose(0, 1)
            _, h = self.rnn(x)
            return h[-1]

    return {"model": Model(), "batch": torch.randn(3, 6, 4)}


@planted("heads-merged-by-view", "batch-mixing")
def heads_merged(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.o = nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            b, t, w = x.shape
            q = self.q(x)
            if bug:
                q = q.reshape(t, b, w)  # culprit: heads-merged-by-view
                q = q.amax(0)
            else:
                q = q.transpose(0, 1).amax(0)
            return self.o(q)

    return {"model": Model(), "batch": torch.randn(4, 5, 8)}


@planted("softmax-over-batch", "batch-mixing")
def softmax_over_batch(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            return torch.softmax(self.body(x), dim=0 if bug else 1)  # culprit: softmax-over-batch

    return {"model": Model(), "batch": X}


@planted("layer-wants-time-first", "batch-mixing")
def time_first(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 6, batch_first=not bug)
            self.out = nn.Linear(6, 3)

        def forward(self, x):
            steps, _ = self.rnn(x)  # culprit: layer-wants-time-first
            return self.out(steps[:, -1])

    return {"model": Model(), "batch": torch.randn(6, 5, 4), "loss_fn": classify}


@planted("attention-over-batch", "batch-mixing")
def attention_over_batch(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = nn.MultiheadAttention(8, 2, batch_first=not bug)
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            y, _ = self.attn(x, x, x)  # culprit: attention-over-batch
            return self.out(y.mean(1))

    return {"model": Model(), "batch": torch.randn(6, 5, 8), "loss_fn": classify}


@planted("normalised-over-everything", "batch-mixing")
def normalised_over_everything(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            h = self.body(x)
            if bug:
                return h / h.norm()  # culprit: normalised-over-everything
            return h / h.norm(dim=1, keepdim=True)

    return {"model": Model(), "batch": X}


@planted("centred-over-batch", "batch-mixing")
def centred_over_batch(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            h = self.body(x)
            return h - h.mean(dim=0 if bug else 1, keepdim=True)  # culprit: centred-over-batch

    return {"model": Model().eval(), "batch": X}


@planted("cumulative-over-batch", "batch-mixing")
def cumulative(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            return self.body(x).cumsum(0 if bug else 1)  # culprit: cumulative-over-batch

    return {"model": Model(), "batch": X}


# -- gradient flow ---------------------------------------------------------------------------------


class Selector(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(5, 4)
        self.table = nn.Parameter(torch.randn(4, 3))


@planted("argmax-selects", "gradient-cut")
def argmax_selects(bug):
    class Model(Selector):
        def forward(self, x):
            scores = self.gate(x)
            if bug:
                choice = scores.argmax(dim=1)  # culprit: argmax-selects
                return self.table[choice]
            return scores.softmax(1) @ self.table

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("hard-threshold", "gradient-cut")
def hard_threshold(bug):
    class Model(Selector):
        def forward(self, x):
            p = torch.sigmoid(self.gate(x))
            if bug:
                p = (p > 0.5).float()  # culprit: hard-threshold
            return p @ self.table

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("data-attribute", "gradient-cut")
def data_attribute(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x).relu()
            if bug:
                h = h.data * 1.0  # culprit: data-attribute
            return self.second(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("through-numpy", "gradient-cut")
def through_numpy(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.first(x)
            if bug:
                h = torch.from_numpy(np.tanh(h.detach().numpy()))  # culprit: through-numpy
            else:
                h = torch.tanh(h)
            return self.second(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("encoder-under-no-grad", "gradient-cut")
def under_no_grad(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            with torch.set_grad_enabled(not bug):
                h = self.encoder(x).tanh()  # culprit: encoder-under-no-grad
            return self.head(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("losses-in-new-tensor", "gradient-cut")
def losses_in_new_tensor(bug):
    def loss(output):
        parts = [F.cross_entropy(output[i : i + 2], Y[i : i + 2]) for i in range(0, 6, 2)]
        if bug:
            return torch.tensor(parts).mean().requires_grad_()  # culprit: losses-in-new-tensor
        return torch.stack(parts).mean()

    return {"model": mlp(), "batch": X, "loss_fn": loss}


@planted("loss-as-number", "gradient-cut")
def loss_as_number(bug):
    def loss(output):
        total = 0.0
        for i in range(6):
            part = F.cross_entropy(output[i : i + 1], Y[i : i + 1])
            total = total + (part.item() if bug else part)  # culprit: loss-as-number
        return torch.as_tensor(total) if not bug else torch.tensor(total, requires_grad=True)

    return {"model": mlp(), "batch": X, "loss_fn": loss}


@planted("rounded-to-integers", "gradient-cut")
def rounded_to_integers(bug):
    class Model(Selector):
        def forward(self, x):
            h = self.gate(x) * 3
            if bug:
                h = h.long()  # culprit: rounded-to-integers
            return h.to(x.dtype) @ self.table

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("detached-features", "gradient-cut")
def detached_features(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x):
            h = self.encoder(x).tanh()
            return self.head(h.detach() if bug else h)  # culprit: detached-features

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("result-dropped", "unused-parameters")
def result_dropped(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)

        def forward(self, x):
            h = self.first(x).relu()  # culprit: result-dropped
            h = self.second(x if bug else h).relu()
            return self.head(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("rounding-is-flat", "zero-gradient")
def rounding_is_flat(bug):
    class Model(Selector):
        def forward(self, x):
            h = self.gate(x) * 4
            if bug:
                h = torch.round(h)  # culprit: rounding-is-flat
            else:
                h = h + (torch.round(h) - h).detach()
            return h @ self.table

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("clamped-away", "zero-gradient")
def clamped_away(bug):
    class Model(Selector):
        def forward(self, x):
            h = self.gate(x) + (10 if bug else 0)
            h = h.clamp(-3, 3)  # culprit: clamped-away
            return h @ self.table

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("root-of-zero", "nan-gradient")
def root_of_zero(bug):
    class Model(Selector):
        def forward(self, x):
            h = self.gate(x) * (x[:, :1] < 0)
            size = (h * h).sum(1, keepdim=True)
            return h / (1 + torch.sqrt(size if bug else size + 1e-6)) @ self.table  # culprit: root-of-zero

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("where-does-not-protect", "nan-gradient")
def where_does_not_protect(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(5))
            self.out = nn.Linear(5, 3)

        def forward(self, x):
            h = x.relu() * self.scale
            if bug:
                h = torch.where(h > 0, h * torch.log(h), torch.zeros_like(h))  # culprit: where-does-not-protect
            else:
                safe = torch.where(h > 0, h, torch.ones_like(h))
                h = safe * torch.log(safe)
            return self.out(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("optimizer-without-head", "optimizer-parameters")
def optimizer_without_head(bug):
    model = mlp()
    chosen = model[0].parameters() if bug else model.parameters()
    optimizer = torch.optim.SGD(chosen, lr=0.1)
    return {"model": model, "batch": X, "loss_fn": classify, "optimizer": optimizer}


@planted("head-replaced-late", "optimizer-parameters")
def head_replaced(bug):
    model = mlp(7)
    if not bug:
        model[2] = nn.Linear(8, 3)
    optimizer = torch.optim.Adam(model.parameters())
    if bug:
        model[2] = nn.Linear(8, 3)
    return {"model": model, "batch": X, "loss_fn": classify, "optimizer": optimizer}


# -- losses ----------------------------------------------------------------------------------------

GOAL = X.sum(1)


@planted("column-minus-vector", "silent-broadcast")
def column_minus_vector(bug):
    def loss(output):
        output = output if bug else output.squeeze(1)
        return ((output - GOAL) ** 2).mean()  # culprit: column-minus-vector

    return {"model": mlp(1), "batch": X, "loss_fn": loss}


@planted("mse-of-column-and-vector", "silent-broadcast")
def mse_of_column(bug):
    def loss(output):
        return F.mse_loss(output, GOAL if bug else GOAL[:, None])  # culprit: mse-of-column-and-vector

    return {"model": mlp(1), "batch": X, "loss_fn": loss}


@planted("weights-against-column", "silent-broadcast")
def weights_against_column(bug):
    weights = torch.rand(6)

    def loss(output):
        error = (output - GOAL.unsqueeze(1)).abs()
        weight = weights if bug else weights.view(-1, 1)
        return (weight * error).mean()  # culprit: weights-against-column

    return {"model": mlp(1), "batch": X, "loss_fn": loss}


@planted("softmax-then-cross-entropy", "activation-before-loss")
def softmax_then_ce(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x):
            h = self.body(x)
            return F.softmax(h, dim=1) if bug else h  # culprit: softmax-then-cross-entropy

    return {"model": Model(), "batch": X, "loss_fn": nn.CrossEntropyLoss(), "target": Y}


@planted("sigmoid-then-logits-loss", "activation-before-loss")
def sigmoid_then_logits(bug):
    goal = (X[:, :1] > 0).float()

    def loss(output):
        p = torch.sigmoid(output)  # culprit: sigmoid-then-logits-loss
        return F.binary_cross_entropy_with_logits(p, goal) if bug else F.binary_cross_entropy(p, goal)

    return {"model": mlp(1), "batch": X, "loss_fn": loss}


@planted("nll-of-probabilities", "activation-before-loss")
def nll_of_probabilities(bug):
    def loss(output):
        p = output.softmax(1) if bug else output.log_softmax(1)  # culprit: nll-of-probabilities
        return F.nll_loss(p, Y)

    return {"model": mlp(), "batch": X, "loss_fn": loss}


@planted("nll-of-scores", "activation-before-loss")
def nll_of_scores(bug):
    def loss(output):
        return F.nll_loss(output if bug else F.log_softmax(output, 1), Y)  # culprit: nll-of-scores

    return {"model": mlp(), "batch": X, "loss_fn": loss}


@planted("softmax-of-one-unit", "softmax-axis")
def softmax_of_one(bug):
    goal = (X[:, :1] > 0).float()

    def loss(output):
        p = torch.softmax(output, dim=1) if bug else torch.sigmoid(output)  # culprit: softmax-of-one-unit
        return F.binary_cross_entropy(p * 0.98 + 0.01, goal)

    return {"model": mlp(1), "batch": X, "loss_fn": loss}


@planted("softmax-over-queries", "softmax-axis")
def softmax_over_queries(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x):
            scores = self.q(x) @ self.k(x).transpose(-2, -1)
            weights = scores.softmax(dim=1 if bug else -1)  # culprit: softmax-over-queries
            return weights @ self.v(x)

    return {"model": Model(), "batch": torch.randn(3, 5, 4)}


@planted("scores-too-large", "loss-at-start")
def scores_too_large(bug):
    model = mlp()
    if bug:
        model[2].weight.data.mul_(100)
    return {"model": model, "batch": X, "loss_fn": lambda output: F.cross_entropy(output, Y)}  # culprit: scores-too-large


@planted("classes-by-view", "view-for-transpose")
def classes_by_view(bug):
    goal = torch.randint(0, 3, (6, 4))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 3)

        def forward(self, x):
            return self.body(x)

    def loss(output):
        scores = output.view(6, 3, 4) if bug else output.transpose(1, 2)  # culprit: classes-by-view
        return F.cross_entropy(scores, goal)

    return {"model": Model(), "batch": torch.randn(6, 4, 5), "loss_fn": loss}


@planted("causal-mask-of-zeros-and-ones", "causal-leak")
def zero_one_causal_mask(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.qkv, self.out = nn.Embedding(20, 8), nn.Linear(8, 24), nn.Linear(8, 20)

        def forward(self, ids):
            q, k, v = self.qkv(self.emb(ids)).chunk(3, -1)
            mask = torch.ones(ids.shape[1], ids.shape[1]).tril()
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask if bug else mask.bool())  # culprit: causal-mask-of-zeros-and-ones
            return self.out(y)

    return {"model": Model(), "batch": torch.randint(0, 20, (3, 6))}


@planted("same-state-returned", "aliased-results")
def same_state_returned(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(5, 5)

        def forward(self, x):
            h, states = torch.zeros_like(x), []
            for _ in range(3):
                if bug:
                    h.add_(self.cell(x))  # culprit: same-state-returned
                else:
                    h = h.add(self.cell(x))
                states.append(h)
            return states

    return {"model": Model(), "batch": X}


# -- writes, modes, structure ----------------------------------------------------------------------


@planted("counts-lost", "lost-duplicates")
def counts_lost(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x, groups):
            h = self.body(x)
            total = torch.zeros(3, 3)
            if bug:
                total[groups] += h  # culprit: counts-lost
            else:
                total = total.index_add(0, groups, h)
            return total

    return {"model": Model(), "batch": (X, torch.tensor([0, 1, 1, 2, 2, 2]))}


@planted("put-without-accumulate", "lost-duplicates")
def put_without_accumulate(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp()

        def forward(self, x, groups):
            total = torch.zeros(3, 3)
            total.index_put_((groups,), self.body(x), accumulate=not bug)  # culprit: put-without-accumulate
            return total

    return {"model": Model(), "batch": (X, torch.tensor([0, 1, 1, 2, 2, 2]))}


@planted("functional-dropout", "dropout-in-eval")
def functional_dropout(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(5, 16), nn.Linear(16, 3)

        def forward(self, x):
            h = self.first(x).relu()
            h = F.dropout(h, 0.5) if bug else F.dropout(h, 0.5, self.training)  # culprit: functional-dropout
            return self.second(h)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("attention-dropout", "dropout-in-eval")
def attention_dropout(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(4, 12)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            p = 0.3 if bug or self.training else 0.0
            return F.scaled_dot_product_attention(q, k, v, dropout_p=p)  # culprit: attention-dropout

    return {"model": Model(), "batch": torch.randn(3, 5, 4)}


@planted("same-state-collected", "aliased-results")
def same_state_collected(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(5, 5)

        def forward(self, x):
            h, states = torch.zeros_like(x), []
            for _ in range(3):
                if bug:
                    h += self.cell(x)  # culprit: same-state-collected
                else:
                    h = h + self.cell(x)
                states.append(h)
            return torch.stack(states, 1)

    return {"model": Model(), "batch": X}


@planted("layer-times-three", "shared-layers")
def layer_times_three(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            if bug:
                self.layers = nn.ModuleList([nn.Linear(5, 5)] * 3)  # culprit: layer-times-three
            else:
                self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return x

    return {"model": Model(), "batch": X}


@planted("layers-in-plain-list", "unregistered-parameters")
def layers_in_plain_list(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layers = [nn.Linear(5, 5) for _ in range(2)]
            self.layers = layers if bug else nn.ModuleList(layers)  # culprit: layers-in-plain-list
            self.out = nn.Linear(5, 3)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x).tanh()
            return self.out(x)

    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("layer-never-called", "unused-parameters")
def layer_never_called(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(5, 5)
            self.two = nn.Linear(5, 5)  # culprit: layer-never-called
            self.out = nn.Linear(5, 3)

        def forward(self, x):
            x = self.one(x).tanh()
            x = second(self)(x).tanh()
            return self.out(x)

    # Not in the class: a layer that one of its methods names is not forgotten.
    second = (lambda model: model.one) if bug else (lambda model: model.two)
    return {"model": Model(), "batch": X, "loss_fn": classify}


@planted("row-by-row", "loop-in-step")
def row_by_row(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 3)

        def forward(self, x):
            h = self.body(x)
            if bug:
                sums = torch.zeros(x.shape[0])
                for i in range(x.shape[0]):
                    sums[i] = h[i].exp().sum()  # culprit: row-by-row
                return h / sums[:, None]
            return h / h.exp().sum(1, keepdim=True)

    return {"model": Model(), "batch": torch.randn(200, 5), "loss_fn": lambda out: out.mean()}


# -- inputs ----------------------------------------------------------------------------------------


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(20, 8), nn.Embedding(10, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, ids):
        h = self.emb(ids)  # culprit: id-out-of-table
        h = h + self.pos(torch.arange(ids.shape[1]))  # culprit: position-out-of-table
        return self.out(h.tanh()[:, 0])


@planted("id-out-of-table", "input-out-of-range")
def id_out_of_table(bug):
    ids = torch.randint(0, 20, (6, 4))
    ids[2, 1] = 20 if bug else 19
    return {"model": Positions(), "batch": ids, "loss_fn": classify}


@planted("position-out-of-table", "input-out-of-range")
def position_out_of_table(bug):
    return {"model": Positions(), "batch": torch.randint(0, 20, (6, 11 if bug else 10)), "loss_fn": classify}


@planted("labels-from-one", "input-out-of-range")
def labels_from_one(bug):
    goal = Y + 1 if bug else Y
    return {"model": mlp(), "batch": X, "loss_fn": lambda output: F.cross_entropy(output, goal)}  # culprit: labels-from-one


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, images):
        h = self.conv(images)  # culprit: pixels-not-scaled
        return self.out(h.relu().mean((2, 3)))


@planted("pixels-not-scaled", "suspicious-input")
def pixels_not_scaled(bug):
    images = torch.randint(0, 256, (6, 3, 8, 8)).float()
    return {"model": Pictures(), "batch": images if bug else images / 255, "loss_fn": classify}


class Pictures2(Pictures):
    def forward(self, images):
        return self.out(self.conv(images).relu().mean((2, 3)))  # culprit: channels-last


@planted("channels-last", "suspicious-input")
def channels_last(bug):
    images = torch.rand(6, 8, 8, 3)
    return {"model": Pictures2(), "batch": images if bug else images.permute(0, 3, 1, 2), "loss_fn": classify}


@planted("nan-in-data", "suspicious-input")
def nan_in_data(bug):
    x = X.clone()
    x[3, 2] = float("nan") if bug else 0.0
    return {"model": mlp(), "batch": x, "loss_fn": classify}


@planted("lengths-beyond-the-data", "suspicious-input")
def lengths_beyond(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.out = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, ids, lengths):
            valid = torch.arange(ids.shape[1])[None] < lengths[:, None]
            h = self.emb(ids).tanh() * valid[..., None]
            return self.out(h.sum(1) / lengths[:, None])

    lengths = torch.tensor([6, 5, 4, 3, 7 if bug else 6, 2])
    ids = torch.randint(1, 20, (6, 6))
    ids[torch.arange(6)[None] >= lengths[:, None]] = 0
    return {"model": Model(), "batch": (ids, lengths), "loss_fn": classify}


@planted("faintly-mixed", "batch-mixing")
def faintly_mixed(bug):
    """The others move by less than rounding is given; made louder, the movement grows, and rounding does not."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.o = nn.Linear(5, 32), nn.Linear(32, 3)

        def forward(self, x):
            h = self.a(x)
            level = h.mean() if bug else h.mean(1, keepdim=True)  # culprit: faintly-mixed
            return self.o(h * (1 + 1e-3 * level))

    return {"model": Model(), "batch": X, "loss_fn": classify}
