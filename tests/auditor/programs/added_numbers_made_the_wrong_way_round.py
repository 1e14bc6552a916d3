# rule: padding-leak
# says: the numbers that are added to the scores are made here, far below zero at positions that hold data
# says: the mask added to the scores hides the words and keeps the padding
BUG = True
import torch
from torch import nn


def added(mask):
    real = mask[:, None, :].float()
    return real * -1e4 if BUG else (1 - real) * -1e4  # culprit


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(50, 16, padding_idx=0), nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, ids, attention_mask):
        x = self.table(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 4
        scores = scores + added(attention_mask)
        return self.out((x + scores.softmax(-1) @ v)[:, 0])


torch.manual_seed(0)
lengths = torch.tensor([9, 4, 6, 3, 7])
attention_mask = (torch.arange(9) < lengths[:, None]).long()
ids = torch.randint(1, 50, (5, 9)) * attention_mask
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, attention_mask), torch.tensor([0, 1, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
