import torch
import torch.nn as nn
import torch.nn.functional as F


def rnn(x, w, u):
    h = torch.zeros(x.size(0), w.size(0))
    outs = []
    for t in range(x.size(1)):
        h = torch.tanh(x[:, t] @ w + h @ u)
        outs.append(h)
    return torch.stack(outs, 1)


def fib(n: int):
    out = torch.zeros(n)
    out[0] = out[1] = 1
    for i in range(2, n):
        out[i] = out[i - 1] + out[i - 2]
    return out


def ragged(seqs, lengths):
    out = []
    for s, n in zip(seqs, lengths):
        out.append(s[:n].mean(0))
    return torch.stack(out)


def layers(x: torch.Tensor, mods):
    for m in mods:
        x = m(x)
    return x


def dropout_rows(x: torch.Tensor):
    out = []
    for r in x:
        out.append(F.dropout(r, 0.5))
    return torch.stack(out)


def noise_rows(x: torch.Tensor):
    out = torch.zeros_like(x)
    for i in range(x.shape[0]):
        out[i] = x[i] + torch.randn_like(x[i])
    return out


def beam(x: torch.Tensor):
    best = []
    for i in range(x.shape[0]):
        v, j = x[i].topk(2)
        best.append((v, j))
    return best


def early(x: torch.Tensor):
    for i in range(x.shape[0]):
        if x[i].sum() > 3:
            return i
    return -1


def until(x: torch.Tensor, eps):
    n = 0
    while x.norm() > eps:
        x = x / 2
        n += 1
    return x, n


def shapes(x: torch.Tensor):
    total = 1
    for s in x.shape:
        total *= s
    return total


def fill_list(n: int):
    vals = [0] * n
    for i in range(n):
        vals[i] = i * 2
    return vals


def dict_of(x: torch.Tensor, names):
    out = {}
    for i, n in enumerate(names):
        out[n] = x[i].item()
    return out


def overlap(x: torch.Tensor):
    for i in range(1, x.shape[0]):
        x[i] = x[i] + x[i - 1] * 0.5
    return x


def windows(x: torch.Tensor, k: int):
    out = []
    for i in range(x.shape[0]):  # the last ones are shorter
        out.append(x[i : i + k].mean())
    return torch.stack(out)


def last_wins(x: torch.Tensor, idx: torch.Tensor, n: int):
    out = torch.zeros(n)
    for i in range(x.shape[0]):
        out[idx[i]] = x[i]
    return out


def swap(x: torch.Tensor):
    n = x.shape[0]
    for i in range(n // 2):
        x[i], x[n - 1 - i] = x[n - 1 - i].clone(), x[i].clone()
    return x


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.bn = nn.BatchNorm1d(4)

    def forward(self, x, h):
        outs = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            outs.append(self.bn(h))
        return torch.stack(outs, 1)


class PerStep(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(3, 2) for _ in range(n)])
        self.bn = nn.BatchNorm1d(2)

    def forward(self, x):
        return torch.stack([self.bn(h(x[:, i])) for i, h in enumerate(self.heads)], 1)


def sample(logits: torch.Tensor):
    out = []
    for row in logits:
        out.append(torch.multinomial(row.softmax(0), 1))
    return torch.cat(out)


def solve(a: torch.Tensor, b: torch.Tensor):
    x = torch.zeros_like(b)
    for i in range(b.shape[0]):
        x[i] = (b[i] - (a[i, :i] * x[:i]).sum()) / a[i, i]
    return x


def clip_grads(model, c):
    for p in model.parameters():
        p.grad.data.clamp_(-c, c)


def momentum(params, bufs, lr):
    with torch.no_grad():
        for p, b in zip(params, bufs):
            b.mul_(0.9).add_(p.grad)
            p.sub_(lr * b)


def metric(pred: torch.Tensor, y: torch.Tensor):
    return (pred.argmax(1) == y).float().mean()


def embed(tokens, table):
    vecs = []
    for t in tokens:
        vecs.append(table[t])
    return torch.stack(vecs)


def read(files):
    out = []
    for f in files:
        out.append(torch.load(f))
    return torch.stack(out)


def collate(batch):
    xs = torch.stack([b[0] for b in batch])
    ys = torch.tensor([b[1] for b in batch])
    return xs, ys
