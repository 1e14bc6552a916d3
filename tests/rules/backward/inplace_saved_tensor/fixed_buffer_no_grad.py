import torch
from torch import nn


class RunningScale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x):
        h = self.fc(x) * self.scale
        with torch.no_grad():
            self.scale = 0.9 * self.scale + 0.1 * h.abs().mean(0)
        return h


model = RunningScale(4)
loss = model(torch.randn(8, 4)).sum() + model(torch.randn(8, 4)).sum()
loss.backward()
