import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader


def train(model, loader, epochs):
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for batch_idx, (data, target) in enumerate(loader):
            output = model(data)
            loss = criterion(output, target)
            loss.backward()  # culprit: missing-zero-grad
            optimizer.step()


class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt

    def fit(self, loader):
        for x, y in loader:
            loss = F.mse_loss(self.model(x), y)
            loss.backward()
            self.opt.zero_grad()  # culprit: backward-order
            self.opt.step()


def step_first(model, loader, opt):
    for x, y in loader:
        opt.zero_grad()  # culprit: backward-order
        loss = F.mse_loss(model(x), y)
        opt.step()
        loss.backward()


def gan(G, D, opt_g, opt_d, loader):
    for real in loader:
        fake = G(torch.randn(real.size(0), 16))
        d_loss = F.softplus(D(fake)).mean() + F.softplus(-D(real)).mean()
        g_loss = F.softplus(-D(fake)).mean()
        opt_d.zero_grad()
        d_loss.backward(retain_graph=True)
        opt_d.step()  # culprit: step-between-backwards
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()


def evaluate(model, loader):
    correct = 0
    for x, y in loader:
        pred = model(x).argmax(1)  # culprit: eval-without-eval-mode
        correct += (pred == y).sum().item()
    return correct / len(loader.dataset)


class Runner:
    def run(self, model, loader, opt, writer):
        history = {"loss": []}
        for step, (x, y) in enumerate(loader):
            opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            history["loss"].append(loss)  # culprit: loss-logged-with-graph
        return history
