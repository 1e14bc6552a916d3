import torch
from torch import nn


def dice(pred, target):
    return 1 - 2 * (pred * target).sum() / (pred.sum() + target.sum() + 1e-6)


net = nn.Conv2d(1, 1, 3, padding=1)
x, y = torch.randn(2, 1, 8, 8), (torch.rand(2, 1, 8, 8) > 0.5).float()
pred = torch.sigmoid(net(x))
loss = dice(pred, y)
loss.backward()
