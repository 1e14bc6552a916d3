# rule: padding-leak
# says: the mask has shape [4, 1, 9, 1] where it meets [4, 2, 9, 9]
# says: `mask[:, None, None, :]`
BUG = True
import math
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        hidden = ~mask[:, None, :, None] if BUG else ~mask[:, None, None, :]
        scores = scores.masked_fill(hidden, -1e9)  # culprit
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(50, 16, padding_idx=0)
        self.att = Attention(16, 2)
        self.head = nn.Linear(16, 3)

    def forward(self, ids):
        mask = ids != 0
        x = self.emb(ids)
        x = x + self.att(x, mask)
        return self.head((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


torch.manual_seed(0)
m = Classifier()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    ids = torch.randint(1, 50, (4, 9)) * (torch.arange(9) < torch.tensor([9, 5, 7, 3])[:, None])
    loss = nn.functional.cross_entropy(m(ids), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
