import torch
from torch import nn

backbone = nn.Linear(4, 4)
head = nn.Linear(4, 2)


@torch.inference_mode()  # culprit: create
def features(x):
    return backbone(x)  # culprit: create


f = features(torch.randn(3, 4))
head(f).sum().backward()  # culprit: operand
# says: `f` [3, 4] no_grad
