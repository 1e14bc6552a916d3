"""What lint found in packages it had not read before, in short (rounds 7 to 10)."""

import torch
import torch.nn.functional as F
from torch import nn, optim


def compare(model_base, model_input, num_iterations=10):
    for i in range(num_iterations):
        pred = model_base(*model_input)
        pred[0].sum().backward(retain_graph=True)  # culprit: missing-zero-grad
        optimizer_base = optim.SGD([param for name, param in model_base.named_parameters()], lr=0.01)
        optimizer_base.step()


class SpatialAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 1, kernel_size=1)

    def forward(self, x):
        B, H, W, C = x.shape
        x = x.view(B, C, H, W)  # culprit: view-for-transpose
        return self.conv(x)


class TokenLearner(nn.Module):
    def __init__(self, S):
        super().__init__()
        self.tokenizers = [SpatialAttention() for _ in range(S)]  # culprit: module-in-plain-list


class ConditionalNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(c))
        self.fc = nn.Linear(c, c)

    def forward(self, x, code):
        gamma = self.gamma.clone()
        gamma = gamma.view(1, -1).expand(x.size(0), x.size(1))
        gamma += self.fc(code)  # culprit: write-into-expanded
        return x * gamma


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.bn = nn.BatchNorm2d(c)

    def forward(self, x):
        out = nn.ReLU()(self.bn(x))
        out += x  # culprit: inplace-over-saved
        return out


class Crf(nn.Module):
    def __init__(self, n, pad):
        super().__init__()
        self.start = nn.Parameter(torch.empty(n))
        self._reset(pad)

    def _reset(self, pad):
        nn.init.uniform_(self.start, -0.1, 0.1)
        self.start[pad] = -10000.0  # culprit: leaf-written-in-place


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    def backward(ctx, grad_output):  # culprit: function-not-static
        return grad_output.clone()


def pooled(hidden, mask):
    hidden = hidden.masked_fill(~mask[..., None], 0.0)
    return hidden.mean(dim=1)  # culprit: mean-over-padding


def trained_on_accuracy(net, x, y):
    pred = net(x).argmax(dim=1)  # culprit: nondifferentiable-loss
    loss = (pred.float() - y).pow(2).mean()
    loss.backward()


def hidden_by_a_flag(net, x, y, crit):
    loss = crit(net(x), y)
    loss.requires_grad_()  # culprit: requires-grad-on-loss
    loss.backward()


def attention(q, k, v, mask):
    scores = q @ k.transpose(-1, -2)
    scores = scores * mask  # culprit: mask-before-softmax
    return F.softmax(scores, dim=-1) @ v


class Experts(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        experts = []
        for _ in range(n):
            experts.append(nn.Sequential(nn.Linear(d, d), nn.GELU()))
        self.experts = experts  # culprit: module-in-plain-list
        self.heads = {}
        for name in ("a", "b"):
            self.heads[name] = nn.Linear(d, 2)  # culprit: module-in-plain-list

    def forward(self, x):
        return [head(sum(e(x) for e in self.experts)) for head in self.heads.values()]


class Moved(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.window = nn.Parameter(torch.ones(n))

    def forward(self, x):
        self.window = self.window.to(x.device)  # culprit: parameter-reassigned
        return x * self.window
