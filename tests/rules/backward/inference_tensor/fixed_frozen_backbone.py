import torch
from torch import nn

backbone = nn.Linear(4, 4)
head = nn.Linear(4, 2)
f = backbone(torch.randn(3, 4)).detach()
head(f).sum().backward()
