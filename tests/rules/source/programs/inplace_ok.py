import torch
import torch.nn.functional as F
from torch import nn


def exp_keeps_its_result():
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    b = a.exp()
    a += 1
    b.sum().backward()


def add_keeps_nothing():
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    b = a + 3
    a *= 5
    b.sum().backward()


def out_of_place():
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    b = a**2
    a = a + 1
    b.sum().backward()


def a_copy():
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    b = a**2
    c = a.clone()
    c += 1
    b.sum().backward()


def never_differentiated():
    x = torch.ones(3)
    b = x**2
    x += 1
    return b


def other_branch(flag):
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    if flag:
        return (a**2).sum()
    a += 1
    return a.sum()


def no_gradients():
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        a = x * 2
        b = a**2
        a += 1
    return b


@torch.no_grad()
def decorated(model: nn.Linear):
    x = model.weight * 2
    y = x**2
    x += 1
    return y


def update(params, lr):
    w = torch.ones(3, requires_grad=True)
    loss = (w**2).sum()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
    w.grad.zero_()


def argument(x: torch.Tensor):
    y = x.exp()
    x += 1
    return y


def unknown(x):
    y = x**2
    x += 1
    return y


def numbers(x, n):
    y = n**2
    n += 1
    return x * y + n


def rows():
    out = torch.zeros(4)
    x = torch.rand(4, 3, requires_grad=True)
    for i in range(0, 4, 2):
        out[i] = x[i].sum()
    out.sum().backward()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.act = nn.ReLU(inplace=True)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x):
        h = self.act(self.conv(x))
        self.frozen.mul_(0.5)
        return h

    def reset(self):
        nn.init.zeros_(self.conv.weight)
        self.conv.weight.data.normal_()
        with torch.no_grad():
            self.conv.bias.fill_(0.0)


net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), nn.Linear(3, 3), nn.LeakyReLU(inplace=True))


def functional(x: torch.Tensor):
    w = torch.ones(3, requires_grad=True)
    return F.relu(w + x, inplace=True)


def copied():
    t = torch.zeros(1, 3).expand(4, 3).clone()
    t[0, 0] = 1.0
    u = torch.zeros(1, 3).repeat(4, 1)
    u += 1
    return t + u


def thresholded(tensor, limit):
    rows, cols = tensor.shape
    tensor[tensor < limit] = 0
    return tensor


start = torch.randn(5, 5, requires_grad=True)
thresholded(start.clone(), 0.5).sum().backward()


class Shadow(nn.Module):
    """Averages of weights, written by helpers that run where nothing is recorded."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.scale = nn.Parameter(torch.Tensor(4, 4))
        self.scale.data.uniform_(-1, 1).renorm_(2, 1, 1e-5).mul_(1e5)

    @torch.no_grad()
    def update(self, other):
        self.blend(other, 0.1)

    def blend(self, other, share):
        for mine, theirs in zip(self.model.parameters(), other.parameters()):
            mine.mul_(1 - share).add_(theirs, alpha=share)

    def blend_data(self, other, share):
        for mine, theirs in zip(self.model.parameters(), other.parameters()):
            mine.data.mul_(1 - share).add_(theirs.data, alpha=share)


def converted(old):
    """Whoever calls this may have turned recording off."""
    new = nn.Linear(old.in_features, old.out_features)
    new.weight.copy_(old.weight)
    return new


def filled_levels(features, rois, parrots):
    out = features[0].new_zeros(rois.size(0), 4)
    if parrots:
        out.requires_grad = True
    for level in range(3):
        out[level] = features[level][0]
    return out


def refilled(position: torch.Tensor, batch):
    ids = position.reshape(1, 1).expand(batch, 1)
    ids.fill_(3)
    return ids


def masked_only_sometimes_trained(scorer, x, mask, target, other):
    weights = torch.softmax(scorer.scores(x), dim=-1)
    weights[mask] = 0.0
    (F.mse_loss(weights, target) + other.loss(x)).backward()  # the scores may come without a history


def masked_logits(scorer, x, mask, target):
    scores = scorer.scores(x) * 2
    scores[mask] = -1e9
    F.cross_entropy(scores, target).backward()
