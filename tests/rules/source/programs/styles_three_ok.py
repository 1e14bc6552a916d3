"""As in `styles_three.py`, and right: softmax only when not training, logits beside probabilities, losses that are cut off."""

import torch
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            return x
        return F.softmax(x, dim=1)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        logits = self.fc(x)
        return logits, logits.softmax(-1)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 2), nn.Softmax(dim=-1))

    def forward(self, x):
        return self.net(x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = Gate()
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))

    def forward(self, x):
        return torch.einsum("bk,kbc->bc", self.gate(x), torch.stack([e(x) for e in self.experts]))


def train(loader):
    plain, both, mixed, gate = Net(), Both(), Experts(), Gate()
    criterion = nn.CrossEntropyLoss()
    for x, y in loader:
        logits, probabilities = both(x)
        loss = criterion(plain(x), y) + criterion(logits, y) + criterion(mixed(x), y)
        loss = loss + F.nll_loss(gate(x).log(), y) + criterion(plain(x), gate(x).detach())
        loss.backward()
        print((probabilities.argmax(-1) == y).sum())
        plain.zero_grad(), both.zero_grad(), mixed.zero_grad(), gate.zero_grad()


class Adversaries:
    def __init__(self):
        self.G, self.D = nn.Linear(4, 4), nn.Linear(4, 1)
        self.og, self.od = optim.Adam(self.G.parameters()), optim.Adam(self.D.parameters())

    def step(self, real, bce):
        fake = self.G(torch.randn(8, 4))
        d_loss = bce(self.D(fake.detach()), torch.zeros(8, 1)) + bce(self.D(real), torch.ones(8, 1))
        self.od.zero_grad()
        d_loss.backward(retain_graph=True)
        self.od.step()
        g_loss = bce(self.D(fake), torch.ones(8, 1))
        self.og.zero_grad()
        g_loss.backward()
        self.og.step()


class ActorCritic:
    def __init__(self):
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)
        self.actor_opt, self.critic_opt = optim.Adam(self.actor.parameters()), optim.Adam(self.critic.parameters())

    def learn(self, s, a, r):
        delta = r - self.critic(s)
        critic_loss = delta.pow(2).mean()
        actor_loss = -(self.actor(s).log_softmax(-1).gather(1, a) * delta.detach()).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward(retain_graph=True)
        self.critic_opt.step()
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()


def either(model, loss_fn, optimizer, loader, training):
    total = 0.0
    with torch.inference_mode(mode=not training):
        for x, y in loader:
            loss = loss_fn(model(x), y)
            total += loss.item()
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return total
