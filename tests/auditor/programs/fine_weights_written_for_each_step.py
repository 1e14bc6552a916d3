import torch
from torch import nn

B, T, CLASSES = 6, 6, 6
torch.manual_seed(0)
series = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(1))
tags = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, CLASSES))
opt = torch.optim.Adam([*series.parameters()])
for _ in range(2):
    x = torch.randn(B, T, 3)
    weight = torch.linspace(0.1, 1.0, T)
    loss = ((series(x) - x.sum(-1)) ** 2 * weight).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
opt = torch.optim.Adam([*tags.parameters()])
weight = torch.rand(CLASSES) + 0.5
for _ in range(2):
    x, y = torch.randn(B, 9), (torch.rand(B, CLASSES) > 0.5).float()
    cost = nn.functional.binary_cross_entropy_with_logits(tags(x), y, reduction="none")
    loss = (cost * weight).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
