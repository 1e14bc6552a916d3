import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.dh = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.softmax = nn.Softmax(-1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask=None):
        B, T, D = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.heads, self.dh).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.dh)
        if mask is not None:
            scores = scores + (1 - mask) * -1e9
        w = self.drop(self.softmax(scores))
        return self.out((w @ v).transpose(1, 2).contiguous().view(B, T, D))


class Pooled(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.score = nn.Linear(dim, 1)

    def forward(self, ids, mask):
        h = self.emb(ids)
        a = self.score(h).squeeze(-1).masked_fill(mask == 0, -1e9)
        w = torch.softmax(a, dim=1)
        mean = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return torch.bmm(w.unsqueeze(1), h).squeeze(1) + mean


def spatial(x: Tensor):
    b, c, h, w = x.shape
    flat = x.view(b, c, h * w)
    weights = F.softmax(flat, dim=2)
    tokens = flat.transpose(1, 2)
    return weights @ tokens


def losses(model, x, y):
    logits = model(x)
    ce = F.cross_entropy(logits, y)
    kl = F.kl_div(F.log_softmax(logits, -1), F.softmax(logits.detach() / 2, -1), reduction="batchmean")
    probs = logits.softmax(-1)
    entropy = -(probs * probs.clamp_min(1e-9).log()).sum(-1).mean()
    nll = F.nll_loss(probs.log(), y)
    soft = F.cross_entropy(logits, probs.detach())
    return ce + kl + entropy + nll + soft


def routed(scores: Tensor, x: Tensor):
    dispatch = scores.softmax(dim=0)
    combine = scores.softmax(dim=1)
    slots = dispatch.t() @ x
    return combine @ slots


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        x = x.view(-1, 16, 8).mean(1)
        y = x.view(x.size(0), 2, 4)
        return self.fc(y.flatten(1).repeat(1, 16))


def relative_shift(x: Tensor):
    x = torch.cat((torch.zeros_like(x[..., :1]), x), dim=-1)
    _, h, t1, t2 = x.shape
    x = x.reshape(-1, h, t2, t1)
    return x[:, :, 1:, :].reshape(-1, h, t1, t2 - 1)


def skewed(scores: Tensor):
    padded = F.pad(scores, (1, 0))
    b, h, rows, columns = padded.shape
    return padded.reshape(b, h, columns, rows)[:, :, 1:]


def repeated_rows(a: Tensor, k):
    rows, width = a.shape
    return a.view(rows, -1, width).repeat(1, k, 1).reshape(-1, width)


def filled_by_a_kernel(kernel, frames, tokens, heads, dim):
    out = torch.empty(frames, tokens, heads, dim)
    kernel(out)
    frames, tokens_, heads_, dim = out.shape
    return out.view(frames, heads_, tokens_, dim)


def one_query(keys: Tensor, query: Tensor, values: Tensor):
    weights = (keys @ query * 0.5).softmax(dim=0)
    return weights @ values


def distilled(student, teacher, x, temperature: float = 2.0):
    targets = F.softmax(teacher(x) / temperature, dim=-1)
    by_hand = F.kl_div(F.softmax(student(x) / temperature, dim=-1).log(), targets, reduction="batchmean")
    return by_hand + F.kl_div(F.log_softmax(student(x) / temperature, dim=-1), targets, reduction="batchmean")


def loss_of_counted_pixels(pred: Tensor, target: Tensor, target_mask: Tensor | None):
    if target_mask is not None:
        pred = pred.masked_fill(~target_mask, 0.0)
    return pred.log_softmax(1).gather(1, target.unsqueeze(1))
