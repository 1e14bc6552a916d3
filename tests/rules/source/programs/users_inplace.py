import torch
import torch.nn.functional as F
from torch import nn


class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.act = nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.norm(x)
        g = torch.sigmoid(self.gate(h))
        g *= 0.5  # culprit: inplace-over-saved
        return self.proj(h) * g


class Squeeze(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        s = torch.tanh(self.fc(x))
        out = self.act(s)  # culprit: inplace-module-over-saved
        return x * out


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        y = self.conv(x)
        z = y * y
        y += x  # culprit: inplace-over-saved
        return z + y


def normalise(head, x):
    w = nn.Linear(3, 3)(x).softmax(dim=-1)
    w[:, 0] = 0.0  # culprit: inplace-over-saved
    return w / w.sum(-1, keepdim=True)


def train_step():
    w = torch.randn(3, 3, requires_grad=True)
    w[0, 0] = 1.0  # culprit: leaf-written-in-place
    (w @ w).sum().backward()


class Table(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n, n))
        self.weight.normal_(0, 0.02)  # culprit: leaf-written-in-place

    def forward(self, x):
        return x @ self.weight


def update(model, lr, x, y):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    for p in model.parameters():
        p -= lr * p.grad  # culprit: leaf-written-in-place
        p.grad.zero_()


def clip_then_use(x: torch.Tensor):
    scores = torch.exp(nn.Linear(3, 3)(x))
    scores.clamp_(max=10.0)  # culprit: inplace-over-saved
    return scores.sum()


def scaled_attention(x, v):
    q = k = nn.Linear(3, 3)(x)
    attn = F.softmax(q @ k.transpose(-2, -1), dim=-1)
    attn.div_(attn.sum(-1, keepdim=True))  # culprit: inplace-over-saved
    return attn @ v


def bias_grid(b: torch.Tensor):
    grid = b.unsqueeze(0).expand(4, -1)
    grid[0] = 0.0  # culprit: write-into-expanded
    return grid


def through_data(x, net):
    h = nn.Linear(3, 3)(x)
    y = torch.sigmoid(h)
    y.data[y.data > 0.9] = 0.9  # culprit: data-write-over-saved
    return y.sum()


def history(xs: torch.Tensor):
    state = torch.zeros(4, requires_grad=True).clone()
    outs = []
    for t in range(xs.size(0)):
        out = state ** 2
        outs.append(out.sum())
        state += xs[t]  # culprit: inplace-over-saved
    return torch.stack(outs).sum()
