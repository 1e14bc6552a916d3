# rule: softmax-axis, exactly
# says: Changing the content of the
# says: Use `dim=-1`
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.drop = nn.Dropout(0.1)

    def forward(self, x, mask):
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        scores = scores.masked_fill(mask[:, None, :] == 0, -1e9)
        weights = self.drop(scores.softmax(1 if BUG else -1))  # culprit
        return x + weights @ self.v(x)  # culprit


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.attention, self.out = nn.Embedding(50, 16), Attention(16), nn.Linear(16, 5)

    def forward(self, ids, mask):
        return self.out(self.attention(self.table(ids), mask))


torch.manual_seed(1)
m = Tagger()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = (torch.arange(9) < torch.tensor([9, 7, 4, 6])[:, None]).long()
    tags = torch.randint(0, 5, (4, 9)).masked_fill(mask == 0, -100)
    loss = nn.functional.cross_entropy(m(torch.randint(1, 50, (4, 9)) * mask, mask).flatten(0, 1), tags.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
