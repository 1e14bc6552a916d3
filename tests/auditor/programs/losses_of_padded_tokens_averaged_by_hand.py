# rule: padding-in-loss, exactly
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.run, self.out = nn.Embedding(30, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, ids):
        return self.out(self.run(self.embed(ids))[0])


torch.manual_seed(0)
tokens = pad_sequence([torch.randint(1, 30, (n,)) for n in (4, 9, 6, 11, 5, 8)], batch_first=True)
model = Writer()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    each = nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")  # culprit
    if BUG:
        loss = each.mean(1).mean()
    else:
        real = tokens[:, 1:] != 0
        loss = (each * real).sum() / real.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
