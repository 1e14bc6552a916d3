# rule: padding-leak, exactly
# says: the last position of every row is left out
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class WithClassToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.first = nn.Embedding(40, 16), nn.Parameter(torch.randn(1, 1, 16))
        self.block, self.out = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        x = torch.cat([self.first.expand(len(ids), -1, -1), self.embed(ids)], 1)
        places = torch.arange(x.size(1))[None]
        if BUG:
            hidden = places >= lengths[:, None]  # culprit
        else:
            hidden = places > lengths[:, None]
        return self.out(self.block(x, src_key_padding_mask=hidden)[:, 0])


torch.manual_seed(0)
rows = [torch.randint(1, 40, (n,)) for n in (3, 8, 6, 4, 9, 5)]
model = WithClassToken()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(model(pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows])), torch.tensor([0, 1, 2, 0, 1, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
