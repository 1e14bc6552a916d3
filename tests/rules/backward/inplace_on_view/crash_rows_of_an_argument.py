# says: rows.copy_(torch.stack(
import torch
from torch import nn


def to_unit_length_(rows):
    for row in rows:  # culprit: create
        row /= row.norm()  # culprit: mutate


torch.manual_seed(0)
h = nn.Linear(4, 4)(torch.randn(3, 4))
to_unit_length_(h)
h.sum().backward()
