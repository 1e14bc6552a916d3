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
        g = g * 0.5
        return self.act(self.proj(h) * g)


class Conv(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3)
        self.bn = nn.BatchNorm2d(c)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.act(self.bn(self.conv(x)))
        out += x[:, :, 1:-1, 1:-1]
        return F.relu(out, inplace=True)


def causal(scores):
    n = scores.size(-1)
    mask = torch.triu(torch.ones(n, n, device=scores.device), 1).bool()
    scores = scores.masked_fill(mask, float("-inf"))
    scores -= scores.amax(-1, keepdim=True).detach()
    return scores.exp()


class Table(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n))
        nn.init.normal_(self.weight, 0, 0.02)
        with torch.no_grad():
            self.weight[0].fill_(0)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps += 1
        return x @ self.weight


def update(model, lr, loss):
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= lr * p.grad
            p.grad.zero_()


@torch.no_grad()
def ema(target, source, tau):
    for t, s in zip(target.parameters(), source.parameters()):
        t.mul_(1 - tau).add_(tau * s)


def positions(x):
    out = torch.zeros(x.shape[0], 10)
    out[:, 0] = x.sum(1)
    out[:, 1:] = x[:, :9]
    out += 1
    return out


def exp_then_input_changed(x: torch.Tensor):
    y = x.exp()
    z = x + 1
    z += 2
    return y * z


def counted(loader, model):
    correct = torch.zeros(1)
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum()
    return correct


def fresh_every_turn(xs):
    outs = []
    for x in xs:
        h = x * 2
        h += 1
        outs.append(h)
    return torch.stack(outs)


def own_copy(x: torch.Tensor):
    y = x ** 2
    x = x.clone()
    x += 1
    return x + y


class Head(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
        self.dense = None

    def _make_dense(self):
        self.dense = nn.Conv1d(4, 4, 1)
        self.dense.weight.copy_(self.fc.weight[..., None])

    def forward(self, x, at_test=False):
        if at_test and self.dense is None:
            self._make_dense()
        return self.fc(x)


def padded_then_changed(x: torch.Tensor, layer):
    h = nn.Linear(4, 4)(x)
    wide = F.pad(h, (1, 1))
    h += 1
    return wide.sum() + h.sum()


def alignment_loss(log_probs, targets, lengths, target_lengths):
    probs = nn.Linear(4, 4)(log_probs).log_softmax(-1)
    loss = F.ctc_loss(probs, targets, lengths, target_lengths, reduction="sum")
    loss /= targets.size(0)
    return loss


def replaced_conv(conv, kept):
    new = nn.Conv2d(4, 4, 1)
    new.weight.copy_(conv.weight[kept])
    return new


REPLACEMENTS = {"Conv2d": lambda module, masks: replaced_conv(module, masks)}


class Gate(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)

    def forward(self, x):
        original = self.fc(x).sigmoid()
        scores = original + 1
        groups = scores.amax(dim=-1)
        chosen = groups.topk(2, dim=-1)[1]
        scores = scores.masked_fill_(chosen.unsqueeze(-1) > 0, 0.0)
        return original.gather(1, scores.topk(2, dim=-1)[1])
