# rule: causal-leak, exactly
# says: what is applied to the scores hides nothing: it lies between -2.75 and
BUG = True
import torch
from torch import nn


class Slopes(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.out = nn.Embedding(30, 16), nn.Linear(16, 48), nn.Linear(16, 30)

    def bias(self, length):
        place = torch.arange(length)
        slopes = -0.25 * (place[:, None] - place).abs().float()  # culprit
        if BUG:
            return slopes
        return slopes.masked_fill(place > place[:, None], -torch.inf)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.mT / 4 + self.bias(ids.size(1))  # culprit
        return self.out(x + scores.softmax(-1) @ v)  # culprit


torch.manual_seed(0)
model = Slopes()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    tokens = torch.randint(0, 30, (5, 13))
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
