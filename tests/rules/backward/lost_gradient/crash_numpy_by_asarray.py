# says: numpy torch functions
import numpy as np
import torch
from torch import nn


def smape(pred, target):
    pred, target = map(np.asarray, (pred.detach(), target))  # culprit: lost-grad
    return np.mean(np.abs(pred - target) / (np.abs(pred) + np.abs(target)))


criterion = lambda p, t: torch.tensor(smape(p, t))  # noqa: E731
net = nn.Linear(3, 2)
loss = criterion(net(torch.randn(4, 3)), torch.randn(4, 2))
loss.backward()  # culprit: call
