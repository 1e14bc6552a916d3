# rule: padding-leak
# says: `mine` is given here, and hides other positions
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, asks, given, keep):
        scores = self.q(asks) @ self.k(given).transpose(1, 2) / 4
        return scores.masked_fill(~keep, -1e9).softmax(-1) @ self.v(given)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.cross = Attention(), Attention()

    def forward(self, y, memory, triangle, keep):
        y = y + self.own(y, y, triangle)
        return y + self.cross(y, memory, keep)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.src, self.tgt, self.layers, self.out = nn.Embedding(50, 16), nn.Embedding(60, 16), nn.ModuleList([Layer(), Layer()]), nn.Linear(16, 60)

    def forward(self, src, tgt):
        theirs, mine = (src != 0)[:, None], (tgt != 0)[:, None]
        y = self.tgt(tgt)
        for layer in self.layers:
            if BUG:
                y = layer(y, self.src(src), mine & torch.ones(8, 8, dtype=torch.bool).tril(), mine)  # culprit
            else:
                y = layer(y, self.src(src), mine & torch.ones(8, 8, dtype=torch.bool).tril(), theirs)
        return self.out(y)


torch.manual_seed(0)
model = Translator()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    src = torch.randint(1, 50, (4, 8)) * (torch.arange(8) < torch.tensor([8, 5, 3, 6])[:, None])
    tgt = torch.randint(1, 60, (4, 9)) * (torch.arange(9) < torch.tensor([9, 4, 7, 9])[:, None])
    loss = nn.functional.cross_entropy(model(src, tgt[:, :-1]).transpose(1, 2), tgt[:, 1:], ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
