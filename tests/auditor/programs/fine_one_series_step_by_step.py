import torch
from torch import nn


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain, self.trend = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.tensor(0.0))

    def forward(self, series):
        level = series[0]
        levels = []
        for value in series:
            level = level + self.trend + self.gain * (value - level)
            levels.append(level)
        return torch.stack(levels)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(6, 12), nn.Linear(12, 4)

    def forward(self, steps):
        h = torch.zeros(1, 12)
        scores = []
        for step in steps:
            h = self.cell(step.unsqueeze(0), h)
            scores.append(self.out(h))
        return torch.cat(scores)


torch.manual_seed(0)
model = Filter()
opt = torch.optim.Adam(model.parameters(), 0.05)
for _ in range(2):
    x = torch.randn(20).cumsum(0)
    loss = (model(x)[:-1] - x[1:]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
tagger = Tagger()
opt = torch.optim.Adam(tagger.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(tagger(torch.randn(9, 6)), torch.randint(0, 4, (9,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
