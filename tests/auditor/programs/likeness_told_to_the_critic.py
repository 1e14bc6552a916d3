# rule: batch-mixing
"""A critic is shown how alike the samples of its batch are, each compared with each; points that are to be compared within their own cloud are not."""

import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)


class Likeness(nn.Module):
    def __init__(self, width, kernels, each):
        super().__init__()
        self.table = nn.Parameter(0.1 * torch.randn(width, kernels * each))
        self.each = each

    def forward(self, x):
        rows = (x @ self.table).view(len(x), -1, self.each)
        near = (rows.unsqueeze(0) - rows.unsqueeze(1)).abs().sum(3)
        return torch.cat([x, torch.exp(-near).sum(0) - 1, torch.cdist(x, x).mean(1, keepdim=True)], 1)


class Clouds(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, points):
        h = torch.tanh(self.inner(points))
        apart = (h.unsqueeze(0) - h.unsqueeze(1)).sum(1) if BUG else (h.unsqueeze(1) - h.unsqueeze(2)).sum(2)  # culprit
        return self.out(apart.abs().mean(1)).squeeze(1)


critic = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), Likeness(16, 4, 3), nn.Linear(21, 1))
optimizer = torch.optim.Adam(critic.parameters(), 1e-3)
for _ in range(3):
    loss = F.softplus(critic(torch.rand(8, 4))).mean() + F.softplus(-critic(torch.randn(8, 4))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 4))

model = Clouds()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    points = torch.randn(6, 10, 3)
    loss = F.mse_loss(model(points), points.std((1, 2)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 4))
