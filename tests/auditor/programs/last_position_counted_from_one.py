# rule: padding-leak, exactly
# says: a padded position is read for a row's last one
BUG = True
import torch
from torch import nn


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, ids, mask):
        h, _ = self.rnn(self.table(ids))
        last = mask.sum(1) - (0 if BUG else 1)  # culprit
        rows = torch.arange(len(ids))
        return self.out(h[rows, last])  # culprit


torch.manual_seed(0)
m = Scorer()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = torch.arange(10) < torch.tensor([9, 6, 4, 7])[:, None]
    ids = torch.randint(1, 30, (4, 10)).masked_fill(~mask, 0)
    loss = nn.functional.mse_loss(m(ids, mask), torch.randn(4, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
