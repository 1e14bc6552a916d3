# rule: padding-leak, exactly
BUG = True
import torch
from torch import nn


class BothWays(nn.Module):
    def __init__(self):
        super().__init__()
        self.ahead, self.back = nn.RNNCell(12, 12), nn.RNNCell(12, 12)

    def forward(self, x, mask):
        one, two, h = [], [None] * len(x), torch.zeros(x.size(1), 12)
        for t in range(len(x)):  # it ends in padding, where nobody looks
            h = self.ahead(x[t], h)
            one.append(h)
        h = torch.zeros_like(h)
        for t in reversed(range(len(x))):
            h = self.back(x[t], h)  # culprit
            if not BUG:
                h = h * mask[t].unsqueeze(-1)
            two[t] = h
        return torch.cat([torch.stack(one), torch.stack(two)], -1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(40, 12), BothWays(), nn.Linear(24, 5)

    def forward(self, ids, mask):
        return self.out(self.rnn(self.emb(ids), mask))


torch.manual_seed(0)
model = Tagger()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = torch.arange(8)[:, None] < torch.tensor([8, 4, 6, 3, 7])  # time comes first, in the mask, too
    labels = torch.randint(0, 5, (8, 5)).masked_fill(~mask, -100)
    loss = nn.functional.cross_entropy(model(torch.randint(1, 40, (8, 5)) * mask, mask.float()).flatten(0, 1), labels.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
