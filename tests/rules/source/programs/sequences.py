import math

import torch
import torch.nn.functional as F
from torch import nn


def no_dim(x):
    return F.softmax(x)  # culprit: softmax-without-dim


layer = nn.Softmax()  # culprit: softmax-without-dim


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
    scores = torch.matmul(q, k.transpose(-2, -1)) / 8.0
    weights = torch.softmax(scores, dim=-2)  # culprit: softmax-over-wrong-dim
    return torch.matmul(weights, v)


def attention_operator(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
    B, T, D = q.shape
    scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(D)
    weights = F.softmax(scores, dim=1)  # culprit: softmax-over-wrong-dim
    out = weights @ v
    return out


def masked(scores: torch.Tensor, mask: torch.Tensor):
    return torch.softmax(scores * mask, dim=-1)  # culprit: mask-before-softmax


def masked_in_two(scores: torch.Tensor, padding_mask: torch.Tensor):
    scores = scores * padding_mask  # culprit: mask-before-softmax
    return scores.softmax(dim=-1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16, padding_idx=0)
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(16, 4)
        self.heads = 4

    def forward(self, ids):
        x = self.embedding(ids)
        pooled = x.mean(dim=1)  # culprit: mean-over-padding
        return F.softmax(self.fc(pooled), dim=-1)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(128, 4)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = x.view(32, -1)  # culprit: fixed-batch-in-view
        return self.fc(x)


class Heads(nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q = self.proj(x)
        wrong = x.view(B, self.heads, T, C // self.heads)  # culprit: view-for-transpose
        swapped = x.reshape(T, B, C)  # culprit: view-for-transpose
        return q, wrong, swapped


class MultiHead(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.dk = h, d // h
        self.wq, self.wk, self.wv = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, mask=None):
        b, t, d = x.size()
        q = self.wq(x).view(b, self.h, t, self.dk)  # culprit: view-for-transpose
        k = self.wk(x).view(b, t, self.h, self.dk).transpose(1, 2)
        v = self.wv(x).view(b, t, self.h, self.dk).transpose(1, 2)
        s = torch.matmul(q, k.transpose(-1, -2)) / self.dk**0.5
        if mask is not None:
            s = s * mask  # culprit: mask-before-softmax
        a = F.softmax(s, dim=2)  # culprit: softmax-over-wrong-dim
        return torch.matmul(a, v)


criterion = nn.CrossEntropyLoss()


def loss_on_probabilities(model, x, y):
    probs = torch.softmax(model(x), dim=1)  # culprit: cross-entropy-on-softmax
    return F.cross_entropy(probs, y)


def loss_module(model, x, y):
    out = F.softmax(model(x), dim=-1)  # culprit: cross-entropy-on-softmax
    return criterion(out, y)


def binary(model, x, y):
    p = torch.sigmoid(model(x))  # culprit: cross-entropy-on-softmax
    return F.binary_cross_entropy_with_logits(p, y)


def no_log(model, x, y):
    p = torch.softmax(model(x), dim=1)  # culprit: cross-entropy-on-softmax
    return F.nll_loss(p, y)
