# rule: frozen-at-random, exactly
# says: `keys.down.weight`
"""Adapters take the place of two layers, and are frozen together with what they adapt."""

import torch
from torch import nn

BUG = True


class Adapted(nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down, self.up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, rows):
        return self.layer(rows) + self.up(self.down(rows))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.values, self.out = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, rows):
        return self.out(torch.sigmoid(self.keys(rows)) * self.values(rows))


torch.manual_seed(0)
net = Net()
if not BUG:
    net.requires_grad_(False)
for name in ("keys", "values"):
    setattr(net, name, Adapted(getattr(net, name)))  # culprit
if BUG:
    for parameter in net.parameters():
        parameter.requires_grad = False  # culprit
net.out.requires_grad_(True)
optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
rows, labels = torch.randn(48, 6), torch.randint(0, 2, (48,))
for x, y in zip(rows.split(12), labels.split(12), strict=True):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
