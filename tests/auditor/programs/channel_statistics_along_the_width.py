# rule: silent-broadcast
# says: over axes 0, 2 and 3 of [6, 8, 8, 8] give [8]
BUG = True
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(channels, 1, 1)), nn.Parameter(torch.zeros(channels, 1, 1))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x):
        m, v = self.mean, self.var
        if self.training:
            m, v = x.mean((0, 2, 3)), x.var((0, 2, 3))
            with torch.no_grad():
                self.mean.lerp_(m, 0.1)
                self.var.lerp_(v, 0.1)
        if BUG:
            x = (x - m) / (v + 1e-5).sqrt()  # culprit
        else:
            x = (x - m[:, None, None]) / (v[:, None, None] + 1e-5).sqrt()
        return x * self.scale + self.shift


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), Norm(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 1, 8, 8)), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
