import torch
from torch import nn


def dice(pred, target):
    p = pred.detach().cpu().numpy()  # culprit: lost-grad
    t = target.numpy()
    return 1 - 2 * (p * t).sum() / (p.sum() + t.sum() + 1e-6)


net = nn.Conv2d(1, 1, 3, padding=1)
x, y = torch.randn(2, 1, 8, 8), (torch.rand(2, 1, 8, 8) > 0.5).float()
pred = torch.sigmoid(net(x))
loss = torch.as_tensor(dice(pred, y))
loss.backward()  # culprit: call
# says: `pred` detach
