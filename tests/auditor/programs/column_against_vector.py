# rule: silent-broadcast
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(32, 3)
y = x.sum(1)
model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for i in range(0, 32, 8):
        prediction = model(x[i : i + 8])
        if not BUG:
            prediction = prediction.squeeze(-1)
        loss = torch.mean((prediction - y[i : i + 8]) ** 2)  # culprit
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
