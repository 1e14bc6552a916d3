# rule: padding-leak
# says: more columns of padding to `src`
# says: the call gives no `memory_key_padding_mask`
# says: memory_key_padding_mask
BUG = True
import torch
from torch import nn


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16, padding_idx=0), nn.Embedding(30, 16, padding_idx=0)
        self.place = nn.Parameter(torch.randn(1, 20, 16))
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
        self.out = nn.Linear(16, 30)

    def forward(self, src, tgt):
        later = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        more = {} if BUG else {"memory_key_padding_mask": src == 0}
        h = self.transformer(self.source(src) + self.place[:, : src.size(1)], self.target(tgt) + self.place[:, : tgt.size(1)],  # culprit
                             tgt_mask=later, src_key_padding_mask=src == 0, tgt_key_padding_mask=tgt == 0, **more)
        return self.out(h)


def rows(lengths, columns):
    return torch.randint(1, 30, (len(lengths), columns)) * (torch.arange(columns) < torch.tensor(lengths)[:, None])


torch.manual_seed(0)
m = Translator()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    src, tgt = rows([8, 5, 7, 3], 8), rows([6, 9, 4, 5], 9)
    loss = nn.functional.cross_entropy(m(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
