import torch
from torch import nn


class Distance(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(3, 3)

    def forward(self, a, b):
        squares = (self.project(a) - self.project(b)).pow(2)
        return torch.sqrt(squares.sum(-1) + 1e-12)


torch.manual_seed(0)
distance = Distance()
with torch.autograd.set_detect_anomaly(True):
    x = torch.randn(4, 3)
    loss = distance(x, x.clone()).mean()
    loss.backward()
