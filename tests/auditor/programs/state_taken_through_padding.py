# rule: padding-leak, exactly
# says: the state of a loop goes on through padded steps
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.cell = nn.Embedding(50, 16), nn.GRUCell(16, 16)

    def forward(self, ids, mask):
        x, h = self.emb(ids), torch.zeros(len(ids), 16)
        for t in range(ids.size(1)):
            new = self.cell(x[:, t], h)  # culprit
            h = new if BUG else torch.where(mask[:, t, None], new, h)  # culprit
        return h


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.emb, self.cell, self.out = Encoder(), nn.Embedding(50, 16), nn.LSTMCell(16, 16), nn.Linear(16, 50)

    def forward(self, src, src_mask, tgt):
        h = self.enc(src, src_mask)
        c, outs = torch.zeros_like(h), []
        for x in self.emb(tgt).unbind(1):  # it goes on over padded targets, too, and nobody asks for what comes of that
            h, c = self.cell(x, (h, c))
            outs.append(self.out(h))
        return torch.stack(outs, 1)


torch.manual_seed(0)
model = Translator()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = torch.arange(8) < torch.tensor([8, 3, 5, 6])[:, None]
    src = torch.randint(1, 50, (4, 8)) * mask
    tgt = torch.randint(1, 50, (4, 7)) * (torch.arange(7) < torch.tensor([4, 7, 5, 7])[:, None])
    loss = nn.functional.cross_entropy(model(src, mask, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
