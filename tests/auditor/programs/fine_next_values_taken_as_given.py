"""Values that are compared with values of the same network, and keep their history rightly: margins, both views of one sample, steps of a path."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
ranker = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 1))
optimizer = torch.optim.Adam([*net.parameters(), *ranker.parameters()], lr=1e-3)
for _ in range(4):
    rows, others = torch.randn(16, 5), torch.randn(16, 5)
    margin = torch.rand(16)
    ranked = torch.relu(margin + ranker(others)[:, 0] - ranker(rows)[:, 0]).pow(2).mean()
    along = 0.1 * rows.sum(1)
    path = (net(rows + 0.1).squeeze(1) - net(rows).squeeze(1) - along).pow(2).mean()
    cooled = (net(rows + 0.1).squeeze(1) - (along + 0.95 * net(rows).squeeze(1))).pow(2).mean()
    both = nn.functional.mse_loss(net(rows), net(rows + 0.01 * torch.randn(16, 5)))
    loss = ranked + path + cooled + both
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
