# rule: padding-leak, exactly
# says: the softmax runs along axis 1
# says: `dim=2`
BUG = True
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.words, self.asked = nn.Embedding(40, dim), nn.Embedding(40, dim)
        self.q, self.k, self.v, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 3)

    def forward(self, text, question, text_mask):
        h, q = self.words(text), self.asked(question)
        scores = (self.q(q) @ self.k(h).transpose(1, 2)).masked_fill(~text_mask[:, None], -1e9)
        weights = torch.softmax(scores, dim=1 if BUG else 2)  # culprit
        found = weights @ self.v(h)  # culprit
        return self.out(found.mean(1))


torch.manual_seed(0)
m = Reader()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = torch.arange(9) < torch.tensor([9, 5, 7, 4])[:, None]
    loss = nn.functional.cross_entropy(m(torch.randint(1, 40, (4, 9)) * mask, torch.randint(1, 40, (4, 5)), mask), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
