# rule: batch-mixing, exactly
# says: Write `self.to_q(x).transpose(0, 1).reshape(t, b * h, d // h)` and `self.to_k(x).transpose(0, 1).reshape(t, b * h, d // h)` and `self.to_v(x)
# says: shape [5, 11, 24] read off as [11, 15, 8]
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        b, t, d = x.shape
        h = self.heads
        if BUG:
            q = self.to_q(x).reshape(t, b * h, d // h)  # culprit
            k = self.to_k(x).reshape(t, b * h, d // h)  # culprit
            v = self.to_v(x).reshape(t, b * h, d // h)  # culprit
        else:
            q, k, v = (f(x).transpose(0, 1).reshape(t, b * h, d // h) for f in (self.to_q, self.to_k, self.to_v))
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        weights = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
        return torch.bmm(weights, v).transpose(0, 1).reshape(t, b, d).transpose(0, 1)


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.attention, self.out = nn.Linear(7, 24), Attention(24, 3), nn.Linear(24, 1)

    def forward(self, series):
        h = self.inp(series)
        return self.out(h + self.attention(h)).squeeze(-1)


torch.manual_seed(0)
model = Series()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    series = torch.randn(5, 11, 7)
    loss = ((model(series) - series.sum(-1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
