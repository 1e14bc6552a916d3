import torch
import torch.nn.functional as F
from torch import nn


class Experts(nn.Module):
    def __init__(self, width=8, count=4):
        super().__init__()
        self.gate, self.each, self.head = nn.Linear(width, count), nn.ModuleList([nn.Linear(width, width) for _ in range(count)]), nn.Linear(width, 3)

    def forward(self, x):
        scores = self.gate(x)
        best, which = scores.topk(2, dim=-1)
        share = torch.zeros_like(scores).scatter(1, which, best.softmax(-1))
        rows = torch.arange(len(x)).unsqueeze(1)
        again = torch.zeros_like(scores)
        again[rows, which] = best.softmax(-1)
        seen = torch.zeros(len(x), 5).scatter_(1, torch.randint(0, 5, (len(x), 4)), 1.0)
        mixed = sum((share + again)[:, i : i + 1] * expert(x) for i, expert in enumerate(self.each))
        return self.head(mixed) + 0 * seen.sum()


torch.manual_seed(0)
net = Experts()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    loss = F.cross_entropy(net(torch.randn(10, 8)), torch.randint(0, 3, (10,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
