# rule: result-dropped, exactly
# says: Changing token 11 of `ids` moved
BUG = True
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.qkv, self.out = nn.Embedding(40, 16), nn.Linear(16, 48), nn.Linear(16, 40)
        self.register_buffer("tri", torch.tril(torch.ones(16, 16)))

    def forward(self, ids):
        t = ids.size(1)
        q, k, v = self.qkv(self.emb(ids)).chunk(3, -1)
        scores = q @ k.mT / 4
        if BUG:
            scores.masked_fill(self.tri[:t, :t] == 0, float("-inf"))  # culprit
        else:
            scores = scores.masked_fill(self.tri[:t, :t] == 0, float("-inf"))
        return self.out(scores.softmax(-1) @ v)


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    tokens = torch.randint(0, 40, (5, 13))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
