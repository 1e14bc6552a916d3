"""Groups with a learning rate of 0 that are meant so: one that was loaded and stays as it is, one that begins later."""

import torch
from torch import nn

torch.manual_seed(0)
before = nn.Linear(6, 8)
body, middle, head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)
body.load_state_dict(before.state_dict())
model = nn.Sequential(body, nn.ReLU(), middle, nn.ReLU(), head)
optimizer = torch.optim.SGD([{"params": body.parameters(), "lr": 0.0}, {"params": middle.parameters(), "lr": 0.0}, {"params": head.parameters()}], lr=0.1)
rows, labels = torch.randn(32, 6), torch.randint(0, 2, (32,))
for epoch in range(4):
    if epoch == 2:
        optimizer.param_groups[1]["lr"] = 0.05
    for x, y in zip(rows.split(16), labels.split(16), strict=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
