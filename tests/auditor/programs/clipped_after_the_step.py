# rule: nothing-clipped
# says: when SGD had taken its step
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.randn(16, 6)
    loss = (model(x).squeeze(1) - 20 * x.sum(1)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    if BUG:
        optimizer.step()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)  # culprit
    if not BUG:
        optimizer.step()
