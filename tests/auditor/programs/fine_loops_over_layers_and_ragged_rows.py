import torch
from torch import nn


class Tasks(nn.Module):
    """A layer for each task, rows of different lengths, and several draws of a noisy model."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 12)
        self.heads = nn.ModuleList([nn.Linear(12, 1) for _ in range(70)])

    def forward(self, x):
        h = torch.relu(self.body(x))
        return torch.cat([head(h) for head in self.heads], 1)


class Ragged(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x, lengths):
        h = torch.relu(self.body(x))
        return self.out(torch.stack([h[i, :n].amax(0) for i, n in enumerate(lengths)])).squeeze(1)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(6, 1)

    def forward(self, x):
        weight = self.mean.weight + 0.1 * torch.randn_like(self.mean.weight)
        return nn.functional.linear(x, weight, self.mean.bias).squeeze(1)


torch.manual_seed(0)
tasks, ragged, noisy = Tasks(), Ragged(), Noisy()
opt = torch.optim.Adam(tasks.parameters())
for _ in range(2):
    x = torch.randn(10, 6)
    loss = (tasks(x) - x.sum(1, keepdim=True)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
opt = torch.optim.Adam(ragged.parameters())
for _ in range(2):
    x = torch.randn(40, 9, 3)
    loss = (ragged(x, [1 + i % 9 for i in range(40)]) - x[:, 0, 0]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
opt = torch.optim.Adam(noisy.parameters())
for _ in range(2):
    x = torch.randn(10, 6)
    loss = torch.stack([(noisy(x) - x[:, 0]).pow(2).mean() for _ in range(40)]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
