import torch
import torch.nn.functional as F
from torch import nn


def pow_then_add():
    x = torch.ones(3, requires_grad=True)
    a = x * 2
    b = a**2
    a += 1  # culprit: inplace-over-saved
    b.sum().backward()


def log_then_method():
    x = torch.rand(3, requires_grad=True)
    h = x + 1
    y = h.log()
    h.mul_(2)  # culprit: inplace-over-saved
    return y.sum()


def result_kept():
    x = torch.rand(3, requires_grad=True)
    y = torch.sigmoid(x * 2)
    y[0] = 0.0  # culprit: inplace-over-saved
    return y.sum()


def product_keeps_the_other():
    w = torch.rand(3, requires_grad=True)
    gate = w.tanh()
    scale = gate + 1
    y = gate * scale
    scale.clamp_(max=1.0)  # culprit: inplace-over-saved
    return y.sum()


def through_a_view():
    x = torch.rand(4, 4, requires_grad=True)
    h = x * 1.0
    y = h.min()
    row = h[0]
    row += 1  # culprit: inplace-over-saved
    return y


def argument(x: torch.Tensor):
    y = x**2
    x += 1  # culprit: inplace-over-saved
    return y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        return self.act(h)  # culprit: inplace-module-over-saved


net = nn.Sequential(
    nn.Linear(3, 3),
    nn.Tanh(),
    nn.Dropout(0.1, inplace=True),  # culprit: inplace-module-over-saved
)


def functional(x: torch.Tensor):
    w = torch.ones(3, requires_grad=True)
    h = torch.softmax(w * x, dim=-1)
    return F.relu(h, inplace=True)  # culprit: inplace-module-over-saved


def unseen():
    w = torch.tensor(2.0, requires_grad=True)
    y = w**2
    w.data.fill_(100.0)  # culprit: data-write-over-saved
    y.backward()


leaf = torch.zeros(5, requires_grad=True)
leaf.index_put_((torch.tensor([1]),), torch.tensor([1.0]))  # culprit: leaf-written-in-place

other = torch.zeros(5, requires_grad=True)
other[0] = 1.0  # culprit: leaf-written-in-place

third = torch.ones(3)
third.requires_grad_()
third += 1  # culprit: leaf-written-in-place


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.weight *= 0.9  # culprit: leaf-written-in-place
        return x * self.weight


def table():
    t = torch.zeros(1, 3).expand(4, 3)
    t[0, 0] = 1.0  # culprit: write-into-expanded
    return t


def table_sum(row: torch.Tensor):
    t = row.broadcast_to((4, 3))
    t += 1  # culprit: write-into-expanded
    return t


def called_with_a_graph(image):
    channels, height, width = image.shape
    for c in range(channels):
        channel = image[c]
        low = channel.min()
        high = channel.max()
        for h in range(height):
            for w in range(width):
                channel[h, w] = (channel[h, w] - low) / (high - low)  # culprit: inplace-over-saved
    return image


picture = torch.rand(3, 8, 8, requires_grad=True)
called_with_a_graph(picture.clone()).sum().backward()


def clamped(net, x, y):
    pred = torch.sigmoid(net(x))
    pred.data.clamp_(1e-6, 1 - 1e-6)  # culprit: data-write-over-saved
    loss = F.binary_cross_entropy(pred, y)
    loss.backward()


def masked(scorer, x, mask, target):
    weights = torch.softmax(scorer.scores(x), dim=-1)
    weights[mask] = 0.0  # culprit: inplace-over-saved
    F.mse_loss(weights, target).backward()
