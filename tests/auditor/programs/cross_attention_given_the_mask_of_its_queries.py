# rule: padding-leak, exactly
# says: is given the mask of `hypothesis`, and what it looks at is `premise`
# says: Give this operation the mask of `premise`
BUG = True
import torch
from torch import nn


class CrossBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.sa = nn.MultiheadAttention(d, h, batch_first=True)
        self.ca = nn.MultiheadAttention(d, h, batch_first=True)
        self.ln = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, x, ctx, x_pad, ctx_pad):
        x = self.ln[0](x + self.sa(x, x, x, key_padding_mask=x_pad, need_weights=False)[0])
        if BUG:
            y, _ = self.ca(x, ctx, ctx, key_padding_mask=x_pad, need_weights=False)  # culprit
        else:
            y, _ = self.ca(x, ctx, ctx, key_padding_mask=ctx_pad, need_weights=False)
        x = self.ln[1](x + y)
        return self.ln[2](x + self.ff(x))


class Entail(nn.Module):
    def __init__(self, vocab=70, d=24):
        super().__init__()
        self.e = nn.Embedding(vocab, d, padding_idx=0)
        self.p = nn.Embedding(32, d)
        self.blocks = nn.ModuleList(CrossBlock(d, 2) for _ in range(2))
        self.o = nn.Linear(d, 3)

    def forward(self, premise, hypothesis):
        pp, hp = premise == 0, hypothesis == 0
        ctx = self.e(premise) + self.p(torch.arange(premise.size(1)))
        x = self.e(hypothesis) + self.p(torch.arange(hypothesis.size(1)))
        for b in self.blocks:
            x = b(x, ctx, hp, pp)
        return self.o(x.masked_fill(hp[..., None], 0).sum(1) / (~hp).sum(1, keepdim=True))


def ragged(ns, width):
    rows = [torch.randint(1, 70, (n,)) for n in ns]
    out = torch.zeros(len(ns), width, dtype=torch.long)
    for i, r in enumerate(rows):
        out[i, : len(r)] = r
    return out


torch.manual_seed(0)
m = Entail()
opt = torch.optim.Adam(m.parameters(), 1e-3)
for _ in range(3):
    a, b = ragged([10, 6, 8, 4, 9], 10), ragged([5, 10, 7, 3, 8], 10)
    loss = nn.functional.cross_entropy(m(a, b), torch.tensor([0, 1, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
