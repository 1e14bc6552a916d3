import torch
from torch import nn


def freeze(module):
    for p in module.parameters():
        p.requires_grad = False


body, head = nn.Linear(3, 4), nn.Linear(4, 1)
freeze(body)
head(body(torch.randn(5, 3))).mean().backward()
