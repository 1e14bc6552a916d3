import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = []
        for a, b in zip(sizes, sizes[1:]):
            self.layers.append(nn.Linear(a, b))  # culprit: module-in-plain-list
        self.scales = [nn.Parameter(torch.ones(1)) for _ in sizes]  # culprit: module-in-plain-list
        self.head = nn.Linear(sizes[-1], 2)

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales):
            x = F.relu(layer(x)) * scale
        return self.head(x)


class Experts(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.experts = {f"e{i}": nn.Linear(4, 4) for i in range(n)}  # culprit: module-in-plain-list

    def forward(self, x):
        return sum(e(x) for e in self.experts.values())


def to_number(model, x, y):
    pred = model(x)
    loss = torch.tensor(F.mse_loss(pred, y).item(), requires_grad=True)  # culprit: loss-leaves-graph
    loss.backward()


def through_numpy(model, x, y):
    out = model(x).detach().numpy()
    loss = torch.from_numpy((out - y.numpy()) ** 2).mean()
    loss.requires_grad_()  # culprit: requires-grad-on-loss
    loss.backward()


def accuracy_loss(model, x, y):
    logits = model(x)
    loss = 1 - (logits.argmax(dim=1) == y).float().mean()  # culprit: nondifferentiable-loss
    loss.backward()


def hard(model, x, y):
    pred = (torch.sigmoid(model(x)) > 0.5).float()  # culprit: nondifferentiable-loss
    loss = F.mse_loss(pred, y)
    loss.backward()


def frozen_training(model, loader, opt):
    with torch.no_grad():  # culprit: no-grad-around-training
        for x, y in loader:
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()


def running(model, loader, opt):
    total = 0
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        total += loss  # culprit: loss-accumulated-with-graph
    return total / len(loader)


def logged(model, loader, opt):
    losses = []
    for x, y in loader:
        opt.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        losses.append(loss)  # culprit: loss-logged-with-graph
    return losses


class Reparam(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        self.alpha = torch.clamp(self.alpha, 0, 1)  # culprit: parameter-reassigned
        return x * self.alpha


def rebuilt(model, x, y):
    pred = model(x)
    total = torch.tensor([F.mse_loss(pred, y), pred.abs().mean()]).sum()  # culprit: loss-leaves-graph
    total.backward()


def detached_target(model, x, y):
    pred = model(x)
    loss = ((pred.detach() - torch.ones(3)) ** 2).mean()  # culprit: loss-leaves-graph
    loss.backward()


def rebuilt_as_a_leaf(model, x, y):
    pred = model(x)
    near, small = F.mse_loss(pred, y), pred.abs().mean()
    total = torch.tensor([near, small], requires_grad=True).mean()  # culprit: loss-leaves-graph
    total.backward()
