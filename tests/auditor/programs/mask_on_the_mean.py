# rule: silent-broadcast, exactly
# says: the loss is one number before it meets its [16, 8] weights
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(4):
    x, seen = torch.randn(16, 8), (torch.rand(16, 8) > 0.3).float()
    error = (model(torch.cat([x * seen, seen], 1)) - x) ** 2
    if BUG:
        error = error.mean()  # culprit
    loss = (error * seen).sum() / seen.sum()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
