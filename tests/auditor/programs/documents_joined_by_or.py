# rule: causal-leak, exactly
# says: a mask that hides what lies ahead is combined here with one that shows it
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Packed(nn.Module):
    """Documents packed into blocks; each position sees its own document up to itself."""

    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(40, 24), nn.Embedding(20, 24)
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 40)

    def forward(self, ids, document):
        rows, length = ids.shape
        same = document[:, :, None] == document[:, None, :]
        earlier = torch.ones(length, length, dtype=torch.bool).tril()
        if BUG:
            seen = (same | earlier)[:, None]  # culprit
        else:
            seen = (same & earlier)[:, None]
        x = self.token(ids) + self.place(torch.arange(length))
        q, k, v = (part.view(rows, length, 4, 6).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)  # culprit
        return self.out(x + mixed.transpose(1, 2).flatten(2))


torch.manual_seed(0)
ends = (torch.rand(16, 20) < 0.15).long()
blocks, documents = torch.randint(1, 40, (16, 20)), ends.cumsum(1) - ends
model = Packed()
optimizer = torch.optim.AdamW(model.parameters())
for ids, document in zip(blocks.split(4), documents.split(4)):
    logits = model(ids, document)
    inside = document[:, 1:] == document[:, :-1]
    loss = F.cross_entropy(logits[:, :-1][inside], ids[:, 1:][inside])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
