"""What is written has a name, but it is only a part of what was saved: the report must not give the whole the part's name."""
# says: result relu [4, 6]
import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 6), nn.ReLU())

    def forward(self, x):
        y = self.body(x)  # culprit: save
        left = y[:, :2]
        left *= 0.5  # culprit: mutate
        x = y
        return x.sum()


torch.manual_seed(0)
Gated()(torch.randn(4, 3)).backward()
