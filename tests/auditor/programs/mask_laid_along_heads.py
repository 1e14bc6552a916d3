# rule: batch-mixing
# says: the mask is given its axes here
# says: the mask's samples lie along axis 1 of the scores here
# says: the mask has shape [4, 1, 6] where it meets scores of shape [4, 4, 6, 6]
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT).masked_fill(mask == 0, -1e9)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.attention, self.out = nn.Embedding(50, 16, padding_idx=0), Attention(), nn.Linear(16, 3)

    def forward(self, ids, mask):
        x = self.table(ids)
        return self.out((x + self.attention(x, mask.unsqueeze(1) if BUG else mask[:, None, None, :]))[:, 0])  # culprit


torch.manual_seed(0)
mask = (torch.arange(6) < torch.tensor([6, 3, 5, 4])[:, None]).long()
ids = torch.randint(1, 50, (4, 6)) * mask
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, mask), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
