import torch
from torch import nn

model = nn.Linear(3, 2)
loss = model(torch.randn(4, 3)) ** 2
(loss.sum() / 8).backward()
