import math

import torch
import torch.nn.functional as F
from torch import nn

layer = nn.Softmax(dim=-1)
image_softmax = nn.Softmax2d()


def softmaxed(x, d):
    return F.softmax(x, d) + F.log_softmax(x, dim=-1) + torch.softmax(x, 1)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor):
    B, H, T, D = q.shape
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(D)
    scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    return torch.matmul(weights, v)


def three_dimensions(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
    B, T, D = q.shape
    weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), dim=2)
    return weights @ v


def slots(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):
    """Competition over queries, then renormalised: the softmax result is not what is multiplied."""
    weights = torch.softmax(q @ k.transpose(-1, -2), dim=-2)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights @ v


def additive(scores: torch.Tensor, mask: torch.Tensor):
    masked = scores * mask + (1 - mask) * -1e9
    return torch.softmax(masked, dim=-1)


def scaled(scores: torch.Tensor, scale: float):
    return torch.softmax(scores * scale, dim=-1)


def after(scores: torch.Tensor, mask: torch.Tensor):
    weights = torch.softmax(scores, dim=-1) * mask
    return weights / weights.sum(-1, keepdim=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 16, padding_idx=0)
        self.plain = nn.Embedding(100, 16)
        self.fc = nn.Linear(16, 4)
        self.heads = 4

    def forward(self, ids, mask):
        x = self.embedding(ids)
        pooled = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        positions = self.plain(ids).mean(dim=1)
        features = x.mean(dim=-1)
        return self.fc(pooled) + positions.sum() + features.sum()


class Heads(nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        self.heads = heads
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, T, C = x.shape
        q = x.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        flat = x.reshape(B * T, C)
        back = flat.view(B, T, C)
        first = x.view(1, B, T, C)
        rows = x.view(x.size(0), -1)
        return q, back, first, rows


class Groups(nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        return x.view(N, 8, C // 8, H, W)


def frames(x):
    if x.dim() == 4:
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w)
    else:
        b, t, c, h, w = x.shape
        x = x.view(b, t // 2, 2, c, h, w)
    return x


criterion = nn.CrossEntropyLoss()


def loss(model, x, y):
    logits = model(x)
    probs = torch.softmax(logits, dim=1)
    print(probs.max())
    return criterion(logits, y) + F.nll_loss(F.log_softmax(logits, dim=1), y)


def bce(model, x, y):
    return F.binary_cross_entropy(torch.sigmoid(model(x)), y)


def masked_and_normalised_again(vector: torch.Tensor, mask: torch.Tensor):
    result = torch.softmax(vector * mask, dim=-1)
    result = result * mask
    return result / (result.sum(dim=-1, keepdim=True) + 1e-9)


def patches(images: torch.Tensor, size):
    batch, channels, height, width = images.shape
    height = height // size
    width = width // size
    images = images.view(batch, channels, height, size, width, size)
    return images.permute(0, 2, 4, 1, 3, 5).reshape(batch, height * width, -1)


def unpatched(x: torch.Tensor, size):
    batch, channels, frames, height, width = x.shape
    channels = channels // (size * size)
    x = x.reshape(batch, channels, size, size, frames, height, width)
    return x.permute(0, 1, 4, 5, 3, 6, 2).reshape(batch, channels, frames, height * size, width * size)
