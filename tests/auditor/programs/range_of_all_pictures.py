# rule: batch-mixing, exactly
import torch
from torch import nn

BUG = True


class Depth(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))

    def forward(self, x):
        depth = self.body(x)
        low, high = (depth.min(), depth.max()) if BUG else (depth.amin((1, 2, 3), keepdim=True), depth.amax((1, 2, 3), keepdim=True))  # culprit
        return (depth - low) / (high - low + 1e-6)


torch.manual_seed(0)
net = Depth()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x = torch.rand(4, 3, 10, 10)
    loss = (net(x) - x.mean(1, keepdim=True)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
