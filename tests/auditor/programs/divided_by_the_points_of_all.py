# rule: batch-mixing, exactly
# says: with its `mask`, in the place of sample
# says: Count what `mask` says of each sample on its own
BUG = True
import torch
from torch import nn


class Set(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.each, self.all = nn.Sequential(nn.Linear(3, d), nn.ReLU(), nn.Linear(d, d)), nn.Linear(d, 1)

    def forward(self, points, mask):
        h = (self.each(points) * mask.unsqueeze(-1)).sum(1)
        h = h / (mask.sum() if BUG else mask.sum(1, keepdim=True))  # culprit
        return self.all(h).squeeze(-1)


torch.manual_seed(0)
mask = (torch.arange(9) < torch.tensor([9, 4, 7, 5, 6])[:, None]).float()
points = torch.randn(5, 9, 3) * mask.unsqueeze(-1)
net = Set()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.mse_loss(net(points, mask), points.norm(dim=-1).mean(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
