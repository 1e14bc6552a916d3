# rule: batch-mixing, exactly
# says: Write `h.transpose(0, 1).reshape(b, -1)`
BUG = True
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(40, 12), nn.Linear(20, 4)
        self.gru = nn.GRU(12, 10, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, tokens):
        b = tokens.size(0)
        h = self.gru(self.emb(tokens))[1].view(2, 2, b, -1)[-1]
        return self.out(h.reshape(b, -1) if BUG else h.transpose(0, 1).reshape(b, -1))  # culprit


torch.manual_seed(0)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(2):
    tokens = torch.randint(0, 40, (6, 7))
    loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
