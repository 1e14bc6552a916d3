"""Losses that are one number each and meet vectors: coefficients of several losses, and products of two means."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
coefficients = torch.tensor([1.0, 0.5, 0.1])
for _ in range(4):
    x = torch.randn(12, 6)
    out = model(x)
    each = torch.stack([nn.functional.mse_loss(out[:, k], x[:, k]) for k in range(3)])
    apart = torch.cdist(out, out).pow(2)
    likeness = apart.mean() * torch.cdist(x, x).mean() - (apart * torch.cdist(x, x)).mean()
    weighted = (nn.functional.mse_loss(out, x[:, :3], reduction="none") * torch.rand(12, 1)).mean()
    optimizer.zero_grad()
    ((each * coefficients).sum() + 1e-3 * likeness + weighted).backward()
    optimizer.step()
