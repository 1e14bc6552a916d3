import torch
from torch import nn


class Cloud(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.up, self.mix, self.out = nn.Linear(3, d), nn.Linear(2 * d, d), nn.Linear(d, 4)

    def forward(self, pos, knn):
        h = torch.relu(self.up(pos))
        around = h[knn].amax(1)
        return self.out(torch.relu(self.mix(torch.cat([h, around], -1))))


class Scaled(nn.Module):
    """Numbers for each row of a square table that is given, along its columns on purpose: a graph's degrees."""

    def __init__(self):
        super().__init__()
        self.w, self.out = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x, a):
        d = a.sum(1).rsqrt()
        return self.out(torch.relu((d.unsqueeze(1) * a * d) @ self.w(x)))


torch.manual_seed(0)
points, features = torch.randn(30, 3), torch.randn(30, 6)
knn = torch.cdist(points, points).topk(5, largest=False).indices
table = torch.zeros(30, 30).scatter_(1, knn, 1.0)
table = ((table + table.T) > 0).float()
labels = torch.randint(0, 4, (30,))
for net, given in ((Cloud(), (points, knn)), (Scaled(), (features, table))):
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(net(*given), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
