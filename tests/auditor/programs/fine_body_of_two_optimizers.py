"""A body that two optimizers share, each with a head and a loss of its own; and one that is trained by a second optimizer afterwards."""

import torch
from torch import nn

torch.manual_seed(0)
body, colour, shape = nn.Sequential(nn.Linear(6, 12), nn.Tanh()), nn.Linear(12, 3), nn.Linear(12, 4)
optimizers = [torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05) for head in (colour, shape)]
for _ in range(6):
    rows = torch.randn(20, 6)
    for head, optimizer, labels in ((colour, optimizers[0], rows[:, :3].argmax(1)), (shape, optimizers[1], rows[:, 2:].argmax(1))):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(body(rows)), labels)
        loss.backward()
        optimizer.step()
only = torch.optim.Adam(body.parameters(), lr=1e-3)
for _ in range(3):
    only.zero_grad()
    loss = nn.functional.cross_entropy(colour(body(rows)), rows[:, :3].argmax(1))
    loss.backward()
    only.step()
print(float(loss.detach()))
