import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.hashed, self.out = nn.Embedding(30, 12), nn.Embedding(256, 12), nn.Linear(12, 3)

    def forward(self, ids, mask):
        h = self.emb(ids).masked_fill(~mask.bool().unsqueeze(-1), 0.0)
        pairs = ids.to(torch.uint8) * 31 + ids.roll(1, 1).to(torch.uint8)  # a hash may wrap around
        even = (~ids & 1).float().mean()
        return self.out((h + self.hashed(pairs.long())).sum(1) / mask.sum(1, keepdim=True)) * (1 + 0 * even)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    mask = (torch.arange(9)[None] < torch.full((6, 1), 9)).long()
    pixels = torch.randint(0, 100, (6, 3), dtype=torch.uint8) + 100
    loss = F.cross_entropy(net(torch.randint(1, 30, (6, 9)), mask) + pixels / 255, torch.randint(0, 3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
