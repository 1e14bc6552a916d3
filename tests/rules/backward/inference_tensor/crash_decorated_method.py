# says: `self.backbone(x)`
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)

    @torch.inference_mode()  # culprit: create
    def forward(self, x):
        return self.net(x)  # culprit: create


class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = Backbone(), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.backbone(x))  # culprit: operand


torch.manual_seed(0)
Probe()(torch.randn(4, 3)).square().mean().backward()
