import torch
from torch import nn


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Linear(4, 4)
        self.keys = None

    def forward(self, x):
        key = self.f(x)
        self.keys = key if self.keys is None else torch.cat([self.keys.detach(), key], 0)
        return (key @ self.keys.T).softmax(-1) @ self.keys


torch.manual_seed(0)
layers = nn.ModuleList([Cache(), Cache()])
for batch in torch.randn(3, 2, 4):
    x = batch
    for layer in layers:
        x = layer(x)
    x.mean().backward()
