# rule: lost-duplicates, exactly
# says: , 0, 
BUG = True
import torch
from torch import nn


class Raster(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))

    def forward(self, points):
        b, n, _ = points.shape
        cell = ((points + 1) * 3).long().clamp(0, 5)
        row = torch.arange(b)[:, None].expand(b, n)
        grid = torch.zeros(b, 1, 6, 6)
        if BUG:
            grid[row, 0, cell[..., 0], cell[..., 1]] += 1.0  # culprit
        else:
            grid.index_put_((row, torch.zeros_like(row), cell[..., 0], cell[..., 1]), torch.ones(b, n), accumulate=True)
        return self.net(grid / n)


torch.manual_seed(0)
net = Raster()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.tanh(torch.randn(6, 30, 2))), torch.randint(0, 2, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
