# says: `loss` is an int (0), not a tensor
import torch
from torch import nn

net = nn.Linear(3, 1)
loss = 0
for x in torch.randn(0, 3):
    loss = loss + net(x).sum()
loss.backward()  # culprit: call
