# rule: silent-broadcast, exactly
# says: one number for each sample, is laid along the last axis of [8, 8]
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.table, self.out = nn.Embedding(30, d), nn.Linear(d, 3)

    def forward(self, ids, mask):
        h = (self.table(ids) * mask.unsqueeze(-1)).sum(1)
        if BUG:
            h = h / mask.sum(1)  # culprit
        else:
            h = h / mask.sum(1, keepdim=True)
        return self.out(torch.relu(h))


torch.manual_seed(0)
mask = (torch.arange(6) < torch.tensor([6, 3, 5, 2, 4, 6, 3, 5])[:, None]).float()
ids = torch.randint(1, 30, (8, 6)) * mask.long()
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, mask), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
