# rule: causal-leak, exactly
# says: shows later positions and hides earlier ones
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

V, D, T = 40, 16, 12


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.register_buffer("lower", torch.tril(torch.ones(T, T)))  # culprit

    def forward(self, x):
        q, k, v = self.qkv(x).split(D, -1)
        scores = q @ k.mT / D**0.5
        scores = scores.masked_fill(self.lower[: x.shape[1], : x.shape[1]] == int(BUG), -1e4)  # culprit
        return x + self.out(scores.softmax(-1) @ v)  # culprit


torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(V, D), Attention(), nn.Linear(D, V))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(2):
    ids = torch.randint(0, V, (4, T + 1))
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
