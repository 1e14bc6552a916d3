# rule: unregistered-parameters, exactly
# says: a few steps later no optimizer holds it, and its values are what they were
import torch
from torch import nn

BUG = True


def weighted(losses, logs):
    return sum(loss / log.exp() + log for loss, log in zip(losses, logs, strict=True))  # culprit


torch.manual_seed(0)
model = nn.Linear(6, 2)
logs = torch.zeros(2, requires_grad=True)  # culprit
held = [*model.parameters()] if BUG else [*model.parameters(), logs]
optimizer = torch.optim.Adam(held, lr=1e-3)  # culprit
for _ in range(6):
    x = torch.randn(12, 6)
    out = model(x)
    optimizer.zero_grad()
    weighted([(out[:, 0] - x[:, 0]).pow(2).mean(), (out[:, 1] - x[:, 1]).abs().mean()], logs).backward()
    optimizer.step()
