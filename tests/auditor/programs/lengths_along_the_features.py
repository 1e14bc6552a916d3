# rule: silent-broadcast, exactly
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.table, self.out = nn.Embedding(30, d, padding_idx=0), nn.Linear(d, 3)

    def forward(self, ids, lengths):
        if BUG:
            h = self.table(ids).sum(1) / lengths  # culprit
        else:
            h = self.table(ids).sum(1) / lengths[:, None]
        return self.out(torch.relu(h))


torch.manual_seed(0)
lengths = torch.tensor([7, 3, 5, 2, 4, 6])
ids = torch.randint(1, 30, (6, 7)) * (torch.arange(7) < lengths[:, None])
net = Net()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.randint(0, 3, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
