import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers.append(nn.Linear(a, b))
            layers.append(nn.ReLU())
        self.net = nn.Sequential(*layers)
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in sizes])
        self.sizes = [s for s in sizes]
        self.hooks = []

    def forward(self, x):
        return self.net(x)


def logged(model, loader, opt):
    losses, total = [], 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        total += loss.item() * x.size(0)
    return np.mean(losses), total


def straight_through(model, x, y):
    p = torch.sigmoid(model(x))
    hard = (p > 0.5).float()
    out = hard + p - p.detach()
    loss = F.mse_loss(out, y)
    loss.backward()


def distilled(student, teacher, x):
    with torch.no_grad():
        target = teacher(x)
    loss = F.mse_loss(student(x), target.detach())
    loss.backward()


def two_losses(model, x, y, opt):
    opt.zero_grad()
    out = model(x)
    total = 0
    for k in range(3):
        total = total + F.mse_loss(out[:, k], y[:, k])
    total.backward()
    opt.step()


def policy_gradient(policy, obs, returns, opt):
    logits = policy(obs)
    dist = torch.distributions.Categorical(logits=logits)
    action = dist.sample()
    loss = -(dist.log_prob(action) * returns).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return action.item(), loss.item()


def q_learning(net, target_net, batch, gamma):
    s, a, r, s2 = batch
    q = net(s).gather(1, a)
    best = net(s2).argmax(1, keepdim=True)
    with torch.no_grad():
        target = r + gamma * target_net(s2).gather(1, best)
    loss = F.smooth_l1_loss(q, target)
    loss.backward()


def penalty(disc, real, fake):
    mixed = (0.5 * real + 0.5 * fake).detach().requires_grad_()
    grad, = torch.autograd.grad(disc(mixed).sum(), mixed, create_graph=True)
    loss = ((grad.norm(2, dim=1) - 1) ** 2).mean()
    loss.backward()


def weighted(model, x, y):
    w = torch.tensor([1.0, 2.0])
    mask = (y > 0).float()
    loss = (F.binary_cross_entropy_with_logits(model(x), y, reduction="none") * mask).sum() / mask.sum()
    loss.backward()
    return w


class Clamped(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        alpha = torch.clamp(self.alpha, 0, 1)
        return x * alpha


class Interleaved(nn.Module):
    def __init__(self, sizes, functions):
        super().__init__()
        self.layers = []
        for a, b in zip(sizes, sizes[1:]):
            self.layers.append(nn.Linear(a, b))
        parts = []
        for layer, function in zip(self.layers[:-1], functions):
            parts.append(layer)
            parts.append(function())
        self.model = nn.Sequential(*parts)


def made_a_tensor_where_it_is_none(boxes, scores):
    boxes = (boxes.detach() if isinstance(boxes, torch.Tensor) else torch.tensor(boxes)).cpu()
    return boxes, scores.detach() if torch.is_tensor(scores) else torch.tensor(scores)


class Clip(nn.Module):
    def __init__(self, high):
        super().__init__()
        if not isinstance(high, float) and high.size != 1:
            raise ValueError(high)
        self.high = nn.Parameter(torch.tensor(high))


def repeated_numbers(lengths: torch.Tensor, n):
    chunks = torch.ceil(lengths / n).long()
    return torch.tensor([n] * chunks.sum(), dtype=torch.long)


def weights_of_two_terms(first: float, second: float):
    weights = torch.tensor([first, second], requires_grad=True)
    weights.sum().backward()
    return weights.grad
