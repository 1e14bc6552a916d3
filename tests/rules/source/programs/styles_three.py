"""Losses and models apart: what a class of the file ends with, and whose parameters an optimizer of a plain class has."""

import torch
import torch.nn.functional as F
from torch import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)
        self.fc = nn.Linear(8 * 26 * 26, 10)

    def forward(self, x):
        x = F.relu(self.conv(x)).flatten(1)
        x = self.fc(x)
        return F.softmax(x, dim=1)  # culprit: cross-entropy-on-softmax


class Head(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, n), nn.Softmax(dim=1))

    def forward(self, x):
        return self.net(x)  # culprit: cross-entropy-on-softmax


net = Net()
criterion = nn.CrossEntropyLoss()


def train(train_loader, val_loader, optimizer):
    for inputs, labels in train_loader:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        for inputs, labels in val_loader:
            outputs = net(inputs)
            print((outputs.argmax(1) == labels).float().mean())


class Trainer:
    def __init__(self, lr):
        self.model = Head(20, 5)
        self.optimizer = optim.Adam(self.model.parameters(), lr=lr)
        self.loss = nn.CrossEntropyLoss()

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Adversaries:
    def __init__(self):
        self.G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.D = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        self.og, self.od = optim.Adam(self.G.parameters()), optim.Adam(self.D.parameters())

    def step(self, real, bce):
        fake = self.G(torch.randn(8, 4))
        score = self.D(fake)
        d_loss = bce(score, torch.zeros(8, 1)) + bce(self.D(real), torch.ones(8, 1))
        g_loss = bce(score, torch.ones(8, 1))
        self.od.zero_grad()
        d_loss.backward(retain_graph=True)
        self.od.step()  # culprit: step-between-backwards
        self.og.zero_grad()
        g_loss.backward()
        self.og.step()


class ActorCritic:
    def __init__(self):
        self.actor, self.critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.actor_opt, self.critic_opt = optim.Adam(self.actor.parameters()), optim.Adam(self.critic.parameters())

    def learn(self, s, a, r):
        delta = r - self.critic(s)
        critic_loss = delta.pow(2).mean()
        actor_loss = -(self.actor(s).log_softmax(-1).gather(1, a) * delta).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward(retain_graph=True)
        self.critic_opt.step()  # culprit: step-between-backwards
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()
