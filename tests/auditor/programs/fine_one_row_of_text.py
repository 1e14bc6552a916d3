"""A language model on one row at a time: its labels, laid flat, are as many as the row has positions."""

import torch
import torch.nn.functional as F
from torch import nn

V, D, T = 30, 16, 12


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D), nn.Embedding(T, D)
        self.qkv, self.head = nn.Linear(D, 3 * D), nn.Linear(D, V)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        q, k, v = self.qkv(x).chunk(3, -1)
        logits = self.head(x + F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return logits, F.cross_entropy(logits.view(-1, V), targets.view(-1))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
text = torch.randint(0, V, (100,))
for start in (0, 30):
    _, loss = model(text[start : start + T][None], text[start + 1 : start + 1 + T][None])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
