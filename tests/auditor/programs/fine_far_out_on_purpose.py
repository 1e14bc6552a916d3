"""Flat, and rightly so: probabilities of scores that are far out, whose logarithm is taken; a gate that opens after the first steps; one with a way around it."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.gate, self.out = nn.Linear(4, 16), nn.Linear(4, 16), nn.Linear(16, 1)
        self.temperature = nn.Parameter(torch.tensor(30.0))
        nn.init.constant_(self.gate.bias, -9.9)

    def forward(self, rows):
        hidden = torch.relu(self.into(rows))
        hidden = hidden + hidden * torch.sigmoid(self.gate(rows) * 1.0)
        return torch.sigmoid(self.out(hidden).squeeze(1) + self.temperature * rows.sum(1).sign())


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD([{"params": [*net.into.parameters(), *net.out.parameters(), net.temperature]}, {"params": net.gate.parameters(), "lr": 3000.0}], lr=0.01)
for _ in range(6):
    rows = torch.randn(24, 4)
    likely = net(rows)
    flags = (rows.sum(1) > 0).float()
    loss = -(flags * torch.log(likely + 1e-6) + (1 - flags) * torch.log(1 - likely + 1e-6)).mean()
    with torch.no_grad():
        net.gate.bias += 1.5
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
