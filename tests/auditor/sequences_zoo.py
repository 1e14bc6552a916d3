"""Planted bugs of sequence models: padding, causality, label shifts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from planted import planted

VOCAB, WIDTH, B, L = 30, 16, 4, 7


def ids_and_mask(pad: int = 0):
    ids = torch.randint(1, VOCAB, (B, L))
    mask = torch.ones(B, L, dtype=torch.bool)
    mask[1, 5:] = False
    mask[2, 3:] = False
    ids[~mask] = pad
    return ids, mask


LENGTHS = torch.tensor([7, 5, 3, 7])
CLASSES = torch.tensor([0, 1, 2, 1])


def classify(output):
    return F.cross_entropy(output, CLASSES)


class Base(nn.Module):
    layers = "qkv"  # the projections this model uses

    def __init__(self, bug: bool, **embedding):
        super().__init__()
        self.bug = bug
        self.emb = nn.Embedding(VOCAB, WIDTH, **embedding)
        for name in self.layers:
            setattr(self, name, nn.Linear(WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, 3)

    def pooled(self, h, mask):
        return self.out((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


def padded(model):
    return {"model": model, "batch": ids_and_mask(), "loss_fn": classify}


@planted("mean-over-padding", "padding-leak")
def mean_over_padding(bug):
    class Model(Base):
        layers = "q"

        def forward(self, ids, mask):
            h = torch.tanh(self.q(self.emb(ids)))
            if self.bug:
                return self.out(h.mean(1))  # culprit: mean-over-padding
            return self.pooled(h, mask)

    return padded(Model(bug))


@planted("max-over-padding", "padding-leak")
def max_over_padding(bug):
    class Model(Base):
        layers = "q"

        def forward(self, ids, mask):
            h = self.q(self.emb(ids))
            if not self.bug:
                h = h.masked_fill(~mask[..., None], float("-inf"))
            return self.out(h.amax(dim=1))  # culprit: max-over-padding

    return padded(Model(bug))


@planted("max-over-zeroed-padding", "padding-leak")
def max_over_zeroed(bug):
    class Model(Base):
        layers = "q"

        def forward(self, ids, mask):
            h = self.q(self.emb(ids)) * mask[..., None]
            if not self.bug:
                h = h.masked_fill(~mask[..., None], float("-inf"))
            return self.out(h.max(dim=1).values)  # culprit: max-over-zeroed-padding

    return padded(Model(bug))


@planted("pooled-over-zeroed-padding", "padding-leak")
def pooled_over_zeroed(bug):
    """The recurrent layer's packed output is zero where there is padding."""

    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, ids, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(self.emb(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
            h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
            if not self.bug:
                h = h.masked_fill((torch.arange(h.shape[1], device=h.device) >= lengths[:, None])[..., None], -1e9)
            return self.out(F.adaptive_max_pool1d(h.transpose(1, 2), 1).squeeze(2))  # culprit: pooled-over-zeroed-padding

    return {"model": Model(bug), "batch": (ids_and_mask()[0], LENGTHS), "loss_fn": classify}


@planted("positions-taken-for-classes", "class-axis")
def positions_for_classes(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.rnn, self.tags = nn.Embedding(VOCAB, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, L)

        def forward(self, ids):
            return self.tags(self.rnn(self.emb(ids))[0])

    labels = torch.randint(0, L, (B, L))

    def loss(scores):
        if not bug:
            scores = scores.transpose(1, 2)
        return F.cross_entropy(scores, labels)  # culprit: positions-taken-for-classes

    return {"model": Model(), "batch": torch.randint(1, VOCAB, (B, L)), "loss_fn": loss}


@planted("channels-turned-once-too-often", "class-axis")
def channels_turned(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb, self.conv = nn.Embedding(VOCAB, WIDTH), nn.Conv1d(WIDTH, L, 3, padding=1)

        def forward(self, ids):
            scores = self.conv(self.emb(ids).transpose(1, 2))
            return scores.permute(0, 2, 1) if bug else scores

    labels = torch.randint(0, L, (B, L))
    return {
        "model": Model(), "batch": torch.randint(1, VOCAB, (B, L)),
        "loss_fn": lambda scores: F.nll_loss(scores.log_softmax(1), labels),  # culprit: channels-turned-once-too-often
    }  # fmt: skip


@planted("last-step-is-padding", "padding-leak")
def last_step(bug):
    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

        def forward(self, ids, lengths):
            steps, _ = self.rnn(self.emb(ids))
            if self.bug:
                last = steps[:, -1]  # culprit: last-step-is-padding
            else:
                last = steps[torch.arange(len(ids)), lengths - 1]
            return self.out(last)

    return {"model": Model(bug), "batch": (ids_and_mask()[0], LENGTHS), "loss_fn": classify}


@planted("final-state-of-padding", "padding-leak")
def final_state(bug):
    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)

        def forward(self, ids, lengths):
            x = self.emb(ids)
            if not self.bug:
                x = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            _, (h, _) = self.rnn(x)  # culprit: final-state-of-padding
            return self.out(h[-1])

    return {"model": Model(bug), "batch": (ids_and_mask()[0], LENGTHS), "loss_fn": classify}


@planted("bidirectional-over-padding", "padding-leak")
def bidirectional(bug):
    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            self.rnn = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)

        def forward(self, ids, lengths):
            x = self.emb(ids)
            if self.bug:
                steps, _ = self.rnn(x)  # culprit: bidirectional-over-padding
            else:
                packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
                steps, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=ids.shape[1])
            return self.out(steps)

    return {"model": Model(bug), "batch": (ids_and_mask()[0], LENGTHS)}


@planted("attention-without-mask", "padding-leak")
def attention_without_mask(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, mask):
            x = self.emb(ids)
            scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5
            if not self.bug:
                scores = scores.masked_fill(~mask[:, None, :], float("-inf"))
            weights = torch.softmax(scores, dim=-1)  # culprit: attention-without-mask
            return self.pooled(weights @ self.v(x), mask)

    return padded(Model(bug))


@planted("mask-inverted", "padding-leak")
def mask_inverted(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, mask):
            x = self.emb(ids)
            scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5
            hide = mask if self.bug else ~mask
            scores = scores.masked_fill(hide[:, None, :], -1e4)  # culprit: mask-inverted
            return self.pooled(scores.softmax(-1) @ self.v(x), mask)

    return padded(Model(bug))


@planted("mask-on-queries", "padding-leak")
def mask_on_queries(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, mask):
            x = self.emb(ids)
            scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5
            hidden = ~mask[:, :, None] if self.bug else ~mask[:, None, :]
            scores = scores.masked_fill(hidden, -1e9)  # culprit: mask-on-queries
            return self.pooled(F.softmax(scores, dim=-1) @ self.v(x), mask)

    return padded(Model(bug))


@planted("mask-after-softmax", "padding-leak")
def mask_after_softmax(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, mask):
            x = self.emb(ids)
            scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5
            if self.bug:
                weights = scores.softmax(-1)  # culprit: mask-after-softmax
                weights = weights * mask[:, None, :]
            else:
                weights = scores.masked_fill(~mask[:, None, :], float("-inf")).softmax(-1)
            return self.pooled(weights @ self.v(x), mask)

    return padded(Model(bug))


@planted("mask-too-weak", "padding-leak")
def mask_too_weak(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, mask):
            x = self.emb(ids)
            scores = self.q(x) @ self.k(x).transpose(1, 2) / WIDTH**0.5
            penalty = -1.0 if self.bug else -1e9
            scores = scores + (~mask[:, None, :]) * penalty  # culprit: mask-too-weak
            return self.pooled(F.softmax(scores, -1) @ self.v(x), mask)

    return padded(Model(bug))


@planted("module-attention-without-mask", "padding-leak")
def module_attention(bug):
    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

        def forward(self, ids, mask):
            x = self.emb(ids)
            hidden = None if self.bug else ~mask
            y, _ = self.attn(x, x, x, key_padding_mask=hidden)  # culprit: module-attention-without-mask
            return self.out(y)

    return {"model": Model(bug), "batch": ids_and_mask()}


@planted("encoder-without-mask", "padding-leak")
def encoder_without_mask(bug):
    class Model(Base):
        layers = ""

        def __init__(self, bug):
            super().__init__(bug)
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
            self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

        def forward(self, ids, attention_mask):
            hidden = None if self.bug else attention_mask == 0
            h = self.enc(self.emb(ids), src_key_padding_mask=hidden)  # culprit: encoder-without-mask
            return self.out(h[:, 0])

    ids, mask = ids_and_mask()
    return {"model": Model(bug), "batch": {"ids": ids, "attention_mask": mask.long()}, "loss_fn": classify}


@planted("zero-one-mask-added", "padding-leak")
def zero_one_mask(bug):
    class Model(Base):
        layers = "qkv"

        def forward(self, ids, attention_mask):
            x = self.emb(ids)
            mask = attention_mask[:, None, :].float() if self.bug else attention_mask[:, None, :].bool()
            y = F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x), attn_mask=mask)  # culprit: zero-one-mask-added
            return self.out(y)

    ids, mask = ids_and_mask()
    return {"model": Model(bug), "batch": {"ids": ids, "attention_mask": mask.long()}}


@planted("mean-over-padded-length", "padding-leak")
def padded_length(bug):
    class Model(Base):
        layers = "q"

        def forward(self, ids, mask):
            h = torch.relu(self.q(self.emb(ids))) * mask[..., None]
            count = h.shape[1] if self.bug else mask.sum(1, keepdim=True)
            return self.out(h.sum(1) / count)  # culprit: mean-over-padded-length

    return padded(Model(bug))


@planted("norm-over-time", "padding-leak")
def norm_over_time(bug):
    class Model(Base):
        layers = "q"

        def forward(self, ids, mask):
            h = self.q(self.emb(ids))
            if self.bug:
                h = F.layer_norm(h, h.shape[1:])  # culprit: norm-over-time
            else:
                h = F.layer_norm(h, h.shape[2:])
            return self.pooled(h, mask)

    return padded(Model(bug))


@planted("features-averaged-over-padding", "padding-leak")
def float_features(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.proj = nn.Linear(5, 8)

        def forward(self, x, lengths):
            h = torch.sigmoid(self.proj(x))
            valid = torch.arange(x.shape[1])[None] < lengths[:, None]
            if bug:
                return h.mean(dim=1)  # culprit: features-averaged-over-padding
            return (h * valid[..., None]).sum(1) / lengths[:, None]

    x = torch.randn(B, L, 5)
    x[torch.arange(L)[None] >= LENGTHS[:, None]] = 0
    return {"model": Model(), "batch": (x, LENGTHS)}


@planted("last-column-of-series", "padding-leak")
def series_of_numbers(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.out = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 1)

        def forward(self, series, lengths):
            h, _ = self.rnn(series.unsqueeze(-1))
            if bug:
                return self.out(h[:, -1])  # culprit: last-column-of-series
            return self.out(h[torch.arange(len(h)), lengths - 1])

    x = torch.randn(B, L)
    x[torch.arange(L)[None] >= LENGTHS[:, None]] = 0
    return {"model": Model(), "batch": (x, LENGTHS)}


@planted("spectrograms-averaged-over-padding", "padding-leak")
def spectrograms(bug):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.out = nn.Conv2d(1, 4, (3, 1)), nn.Linear(16, 3)

        def forward(self, spectrogram, n_frames):
            h = torch.sigmoid(self.conv(spectrogram)).flatten(1, 2)
            if bug:
                return self.out(h.mean(-1))  # culprit: spectrograms-averaged-over-padding
            real = torch.arange(h.shape[-1]) < n_frames[:, None]
            return self.out((h * real[:, None]).sum(-1) / n_frames[:, None])

    x = torch.randn(B, 1, 6, L)
    x.movedim(3, 1)[torch.arange(L)[None] >= LENGTHS[:, None]] = 0
    return {"model": Model(), "batch": (x, LENGTHS)}


@planted("padding-told-from-ids", "padding-leak")
def implicit_padding(bug):
    class Model(Base):
        layers = "k"

        def forward(self, ids):
            valid = ids != 0
            h = torch.tanh(self.k(self.emb(ids)))
            if self.bug:
                return self.out(h.mean(1))  # culprit: padding-told-from-ids
            return self.pooled(h, valid)

    return {"model": Model(bug, padding_idx=0), "batch": ids_and_mask()[0], "loss_fn": classify}


# -- causality -------------------------------------------------------------------------------------


class Language(nn.Module):
    attends = True

    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, WIDTH)
        if self.attends:
            self.pos = nn.Embedding(32, WIDTH)
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)

    def embed(self, ids):
        return self.emb(ids) + self.pos(torch.arange(ids.shape[1]))


def next_token(model, tokens=None):
    tokens = torch.randint(0, VOCAB, (3, 9)) if tokens is None else tokens
    goal = tokens[:, 1:]
    return {"model": model, "batch": tokens[:, :-1], "loss_fn": lambda out: F.cross_entropy(out.reshape(-1, VOCAB), goal.reshape(-1))}


@planted("no-causal-mask", "causal-leak")
def no_causal_mask(bug):
    class Model(Language):
        def forward(self, ids):
            q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
            scores = q @ k.mT / WIDTH**0.5
            if not bug:
                hidden = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, float("-inf"))
            weights = scores.softmax(-1)  # culprit: no-causal-mask
            return self.head(weights @ v)

    return next_token(Model())


@planted("causal-mask-off-by-one", "causal-leak")
def off_by_one(bug):
    class Model(Language):
        def __init__(self):
            super().__init__()
            self.register_buffer("hidden", torch.ones(32, 32).triu(2 if bug else 1).bool())

        def forward(self, ids):
            q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
            n = ids.shape[1]
            scores = (q @ k.mT).masked_fill(self.hidden[:n, :n], float("-inf"))
            return self.head(F.softmax(scores, -1) @ v)  # culprit: causal-mask-off-by-one

    return {"model": Model(), "batch": torch.randint(0, VOCAB, (3, 8))}


@planted("is-causal-forgotten", "causal-leak")
def is_causal_forgotten(bug):
    class Model(Language):
        def forward(self, ids):
            q, k, v = self.qkv(self.embed(ids)).chunk(3, -1)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=not bug)  # culprit: is-causal-forgotten
            return self.head(y)

    return next_token(Model())


@planted("chunks-of-sorted-buckets", "causal-leak")
def chunks_of_sorted_buckets(bug):
    """Positions attend within chunks of their sorted buckets. A later token may change who shares a chunk, and nothing more."""

    class Model(Language):
        def forward(self, ids):
            h = self.embed(ids)
            (b, n, _), at = h.shape, torch.arange(ids.shape[1])
            buckets = (h @ self.head.weight[:9].T).argmax(-1)
            order = (buckets * n + at).argsort(-1)
            chunks = h.gather(1, order[..., None].expand_as(h)).view(b, -1, 4, WIDTH)
            places = order.view(b, -1, 4)
            q, k, v = self.qkv(chunks).chunk(3, -1)
            scores = q @ k.mT / WIDTH**0.5
            if not bug:
                scores = scores.masked_fill(places[..., None, :] > places[..., None], -1e9)
            weights = scores.softmax(-1)
            mixed = (weights @ v).reshape(b, n, WIDTH)
            return self.head(mixed.gather(1, order.argsort(-1)[..., None].expand_as(h)))

    return next_token(Model(), torch.randint(0, VOCAB, (3, 17)))


@planted("bidirectional-language-model", "causal-leak")
def bidirectional_lm(bug):
    class Model(Language):
        attends = False

        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(WIDTH, WIDTH // 2 if bug else WIDTH, batch_first=True, bidirectional=bug)

        def forward(self, ids):
            h, _ = self.rnn(self.emb(ids))  # culprit: bidirectional-language-model
            return self.head(h)

    return next_token(Model())


@planted("centred-convolution", "causal-leak")
def centred_convolution(bug):
    class Model(Language):
        attends = False

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1 if bug else 0)

        def forward(self, ids):
            x = self.emb(ids).mT
            if not bug:
                x = F.pad(x, (2, 0))
            return self.head(self.conv(x).mT)  # culprit: centred-convolution

    return next_token(Model())


class Recurrent(Language):
    attends = False

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, ids):
        return self.head(self.rnn(self.emb(ids))[0])


@planted("labels-not-shifted", "label-shift")
def labels_not_shifted(bug):
    tokens = torch.randint(0, VOCAB, (3, 9))

    def loss(logits):
        if bug:
            return F.cross_entropy(logits.view(-1, VOCAB), tokens.view(-1))  # culprit: labels-not-shifted
        return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), tokens[:, 1:].reshape(-1))

    return {"model": Recurrent(), "batch": tokens, "loss_fn": loss}


@planted("labels-shifted-twice", "label-shift")
def labels_shifted_twice(bug):
    tokens = torch.randint(0, VOCAB, (3, 12))
    goal = tokens[:, 1:] if bug else tokens

    def loss(logits):
        n = goal.shape[1] - 1
        return F.cross_entropy(logits[:, :n].transpose(1, 2), goal[:, 1 : n + 1])  # culprit: labels-shifted-twice

    return {"model": Recurrent(), "batch": tokens, "loss_fn": loss}


@planted("padding-counts-in-loss", "padding-in-loss")
def padding_counts(bug):
    class Tagger(Base):
        layers = "q"

        def forward(self, ids, mask):
            return self.out(torch.tanh(self.q(self.emb(ids))))

    ids, mask = ids_and_mask()
    tags = torch.randint(0, 3, (B, L)).masked_fill(~mask, 0)

    def loss(output):
        goal = tags if bug else tags.masked_fill(~mask, -100)
        return F.cross_entropy(output.reshape(-1, 3), goal.reshape(-1))  # culprit: padding-counts-in-loss

    return {"model": Tagger(bug), "batch": (ids, mask), "loss_fn": loss}


@planted("ignored-class", "padding-in-loss")
def ignored_class(bug):
    class Tagger(Base):
        layers = "q"

        def forward(self, ids, mask):
            return self.out(torch.tanh(self.q(self.emb(ids))))

    ids, mask = ids_and_mask()
    tags = torch.zeros(B, L, dtype=torch.long)
    tags[:, 1], tags[:, 2] = 1, 2
    tags = tags.masked_fill(~mask, 0 if bug else -1)

    def loss(output):
        return F.cross_entropy(output.reshape(-1, 3), tags.reshape(-1), ignore_index=0 if bug else -1)  # culprit: ignored-class

    return {"model": Tagger(bug), "batch": (ids, mask), "loss_fn": loss}
