# rule: padding-leak, exactly
# says: runs of id 1 at the end of rows
# says: Compare the ids with the id that stands at padded positions: 1
BUG = True
import torch
from torch import nn

SOURCE_PAD, TARGET_PAD = 1, 0


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(40, dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, 3)

    def real(self, ids):
        return (ids != (TARGET_PAD if BUG else SOURCE_PAD))[:, None]  # culprit

    def forward(self, src):
        real = self.real(src)
        q, k, v = self.qkv(self.table(src)).chunk(3, -1)
        scores = (q @ k.mT).masked_fill(real == 0, -1e4)  # culprit
        h = scores.softmax(-1) @ v  # culprit
        return self.out(h[:, 0])


torch.manual_seed(0)
m = Encoder()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    src = torch.randint(4, 40, (4, 9)).masked_fill(torch.arange(9) >= torch.tensor([9, 6, 4, 7])[:, None], SOURCE_PAD)
    loss = nn.functional.cross_entropy(m(src), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
