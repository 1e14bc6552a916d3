# rule: input-out-of-range
BUG = True
import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(100, 8), nn.Linear(8, 2)

    def forward(self, ids):
        h = self.table(ids)  # culprit
        return self.out(h.mean(1))


torch.manual_seed(0)
model = Bag()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ids = torch.randint(0, 100, (4, 5))
ids[1, 2] = 100 if BUG else 99
loss = nn.functional.cross_entropy(model(ids), torch.tensor([0, 1, 1, 0]))
loss.backward()
optimizer.step()
