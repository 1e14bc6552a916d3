"""A forward and a backward language model in one, with a head for the token after the next."""

import torch
import torch.nn.functional as F
from torch import nn

V, D = 40, 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.forth, self.back = nn.Embedding(V, D), nn.LSTM(D, D, batch_first=True), nn.LSTM(D, D, batch_first=True)
        self.next, self.later, self.before = nn.Linear(D, V), nn.Linear(D, V), nn.Linear(D, V)

    def forward(self, ids):
        x = self.table(ids)
        h, g = self.forth(x)[0], self.back(x.flip(1))[0].flip(1)
        return self.next(h), self.later(h), self.before(g)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
ids = torch.randint(0, V, (5, 14))
following, later, before = model(ids)
loss = F.cross_entropy(following[:, :-1].reshape(-1, V), ids[:, 1:].reshape(-1)) + F.cross_entropy(later[:, :-2].reshape(-1, V), ids[:, 2:].reshape(-1))
loss = loss + F.cross_entropy(before[:, 1:].reshape(-1, V), ids[:, :-1].reshape(-1))
optimizer.zero_grad()
loss.backward()
optimizer.step()
