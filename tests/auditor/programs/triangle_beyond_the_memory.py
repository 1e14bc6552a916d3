# rule: causal-leak, exactly
# says: what is applied to the scores hides nothing
BUG = True
import torch
from torch import nn


class Recalling(nn.Module):
    """A segment sees what came before it in the last segment, too."""

    def __init__(self):
        super().__init__()
        self.embed, self.q, self.kv, self.out = nn.Embedding(30, 16), nn.Linear(16, 16), nn.Linear(16, 32), nn.Linear(16, 30)

    def forward(self, ids, memory):
        x = self.embed(ids)
        whole = x if memory is None else torch.cat([memory, x], 1)
        now, all_of_it = x.size(1), whole.size(1)
        k, v = self.kv(whole).chunk(2, -1)
        mask = torch.ones(now, all_of_it, dtype=torch.bool).triu(1 + (all_of_it if BUG else all_of_it - now))  # culprit
        scores = (self.q(x) @ k.mT / 4).masked_fill(mask, -1e9)  # culprit
        return self.out(x + scores.softmax(-1) @ v), x.detach()  # culprit


torch.manual_seed(0)
stream, memory = torch.randint(0, 30, (4, 61)), None
model = Recalling()
optimizer = torch.optim.Adam(model.parameters())
for start in range(0, 60, 10):
    logits, memory = model(stream[:, start : start + 10], memory)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), stream[:, start + 1 : start + 11].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
