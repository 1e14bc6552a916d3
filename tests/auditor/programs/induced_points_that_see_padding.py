# rule: padding-leak, exactly
# says: `keep` is not given here
BUG = True
import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v, self.norm = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d), nn.LayerNorm(d)

    def forward(self, x, y, keep=None):
        scores = self.q(x) @ self.k(y).transpose(1, 2) / 4
        if keep is not None:
            scores = scores.masked_fill(~keep[:, None, :], float("-inf"))
        weights = scores.softmax(-1)  # culprit
        return self.norm(x + weights @ self.v(y))


class Sets(nn.Module):
    """Three points for ten, or one for every three, it might seem."""

    def __init__(self, d=16):
        super().__init__()
        self.up, self.points, self.seed, self.out = nn.Linear(2, d), nn.Parameter(torch.randn(1, 3, d)), nn.Parameter(torch.randn(1, 1, d)), nn.Linear(d, 1)
        self.down, self.back, self.pool = Attend(d), Attend(d), Attend(d)

    def forward(self, points, keep):
        x = self.up(points)
        induced = self.points.expand(len(x), -1, -1)
        if BUG:
            h = self.down(induced, x)  # culprit
        else:
            h = self.down(induced, x, keep)
        return self.out(self.pool(self.seed.expand(len(x), -1, -1), self.back(x, h), keep)).flatten()


torch.manual_seed(0)
keep = torch.arange(10) < torch.tensor([10, 5, 7, 4])[:, None]
points = torch.randn(4, 10, 2) * keep.unsqueeze(-1)
net = Sets()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = (net(points, keep) - points.sum((1, 2))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
