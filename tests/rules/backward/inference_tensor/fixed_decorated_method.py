import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)

    @torch.no_grad()
    def forward(self, x):
        return self.net(x)


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.backbone(x))


torch.manual_seed(0)
Probe()(torch.randn(4, 3)).square().mean().backward()
