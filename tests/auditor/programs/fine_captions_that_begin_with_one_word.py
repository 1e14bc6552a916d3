import torch
from torch import nn


class Writer(nn.Module):
    """From the first word on, it is given its own choice or the true word; here all are written in one call."""

    def __init__(self, words, width):
        super().__init__()
        self.embedding, self.cell, self.out = nn.Embedding(words, width), nn.GRUCell(width, width), nn.Linear(width, words)

    def forward(self, word, hidden, count):
        said = []
        for _ in range(count):
            hidden = self.cell(self.embedding(word), hidden)
            said.append(self.out(hidden))
            word = said[-1].argmax(-1)
        return torch.stack(said, 1)


torch.manual_seed(0)
pictures, writer = nn.Linear(6, 16), Writer(12, 16)
embedding, cell, out = nn.Embedding(12, 16), nn.GRUCell(16, 16), nn.Linear(16, 12)
optimizer = torch.optim.Adam([p for module in (pictures, writer, embedding, cell, out) for p in module.parameters()], lr=1e-2)
for _ in range(4):
    wanted = torch.randint(2, 12, (40, 5))
    first = torch.tanh(pictures(torch.randn(40, 6)))
    word, hidden, loss = torch.ones(40, 1, dtype=torch.long), first, 0.0
    for t in range(5):
        hidden = cell(embedding(word).squeeze(1), hidden)
        loss = loss + nn.functional.cross_entropy(out(hidden), wanted[:, t])
        word = wanted[:, t : t + 1]
    begun = torch.ones(40, dtype=torch.long)
    loss = loss + nn.functional.cross_entropy(writer(begun, first, 5).flatten(0, 1), wanted.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
