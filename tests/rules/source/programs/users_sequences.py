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
        self.softmax = nn.Softmax()  # culprit: softmax-without-dim

    def forward(self, x, mask=None):
        B, T, D = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(B, self.heads, T, self.dh)  # culprit: view-for-transpose
        k = k.view(B, T, self.heads, self.dh).transpose(1, 2)
        v = v.view(B, T, self.heads, self.dh).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.dh)
        if mask is not None:
            scores = scores * mask  # culprit: mask-before-softmax
        w = F.softmax(scores, dim=1)  # culprit: softmax-over-wrong-dim
        return self.out((w @ v).transpose(1, 2).reshape(B, T, D))


class Classifier(nn.Module):
    def __init__(self, vocab, dim, n):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.fc = nn.Linear(dim, n)

    def forward(self, ids):
        h, _ = self.lstm(self.emb(ids))
        pooled = h.mean(dim=1)  # culprit: mean-over-padding
        return F.softmax(self.fc(pooled), dim=1)


def loss_of(model, ids, y):
    logits = model(ids)
    probs = torch.softmax(logits, dim=-1)  # culprit: cross-entropy-on-softmax
    return F.cross_entropy(probs, y)


class Decoder(nn.Module):
    def __init__(self, dim, vocab):
        super().__init__()
        self.proj = nn.Linear(dim, vocab)
        self.loss = nn.CrossEntropyLoss()
        self.nll = nn.NLLLoss()

    def forward(self, h: Tensor, targets: Tensor):
        logp = self.proj(h).log_softmax(-1)
        p = self.proj(h).softmax(-1)  # culprit: cross-entropy-on-softmax
        a = self.loss(p.view(-1, p.size(-1)), targets.view(-1))
        b = self.nll(logp.view(-1, logp.size(-1)), targets.view(-1))
        return a + b


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc = nn.Linear(8 * 26 * 26, 10)

    def forward(self, x):
        x = F.relu(self.conv(x))
        x = x.view(32, 8 * 26 * 26)  # culprit: fixed-batch-in-view
        return F.log_softmax(self.fc(x))  # culprit: softmax-without-dim


def distilled(student, teacher, x, temperature: float = 2.0):
    soft = F.softmax(student(x) / temperature, dim=-1)  # culprit: cross-entropy-on-softmax
    return F.kl_div(soft, F.softmax(teacher(x) / temperature, dim=-1), reduction="batchmean")


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.kl = nn.KLDivLoss(reduction="batchmean")

    def forward(self, student, teacher):
        return self.kl(torch.softmax(student, 1), torch.softmax(teacher, 1))  # culprit: cross-entropy-on-softmax
