# rule: padding-leak, exactly
# says: Give this call the mask of `source`, whose padding it is, in the place of `target_mask`
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x, memory, mask):
        scores = (self.q(x) @ self.k(memory).mT / 4).masked_fill(mask == 0, -1e9)  # culprit
        return scores.softmax(-1) @ self.v(memory)  # culprit


class Translator(nn.Module):
    """Rows of a fixed width, and no `padding_idx`: only the masks tell what is padding."""

    def __init__(self):
        super().__init__()
        self.source, self.target, self.place = nn.Embedding(30, 16), nn.Embedding(30, 16), nn.Embedding(12, 16)
        self.encode, self.decode, self.cross, self.out = Attention(), Attention(), Attention(), nn.Linear(16, 30)

    def forward(self, source, target):
        place = self.place(torch.arange(10))
        x, y = self.source(source) + place, self.target(target) + place
        source_mask, target_mask = (source != 0)[:, None], (target != 0)[:, None]
        memory = x + self.encode(x, x, source_mask)
        y = y + self.decode(y, y, target_mask & torch.ones(10, 10, dtype=torch.bool).tril())
        if BUG:
            y = y + self.cross(y, memory, target_mask)  # culprit
        else:
            y = y + self.cross(y, memory, source_mask)
        return self.out(y)


def padded(lengths, first):
    rows = torch.zeros(len(lengths), 11, dtype=torch.long)
    for row, length in zip(rows, lengths):
        row[:length] = torch.randint(3, 30, (length,))
        row[0] = first or row[0]
    return rows


torch.manual_seed(0)
model = Translator()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    source, target = padded((3, 7, 5, 8, 4, 6), 0)[:, :10], padded((6, 4, 9, 5, 7, 8), 1)
    logits = model(source, target[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
