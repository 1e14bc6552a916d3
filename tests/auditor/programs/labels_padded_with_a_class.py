# rule: padding-in-loss
# says: 0 is also the label of
BUG = True
import torch
from torch import nn

FILL = 0 if BUG else -100


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 3)

    def forward(self, ids):
        return self.out(self.table(ids))


def batch():
    rows = [torch.randint(1, 40, (n,)).tolist() for n in (9, 4, 6, 7)]
    ids = torch.tensor([row + [0] * (9 - len(row)) for row in rows])
    tags = torch.tensor([[word % 3 for word in row] + [FILL] * (9 - len(row)) for row in rows])  # culprit
    return ids, tags


torch.manual_seed(0)
net = Tagger()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids, tags = batch()
    loss = nn.functional.cross_entropy(net(ids).reshape(-1, 3), tags.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
