# rule: padding-leak, exactly
# says: to `choices`
BUG = True
import torch
from torch import nn


class Chooser(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.mix, self.score = nn.Embedding(80, 16, padding_idx=0), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, choices):
        h = torch.tanh(self.mix(self.emb(choices)))
        keep = (choices != 0).unsqueeze(-1)
        h = h.mean(-2) if BUG else (h * keep).sum(-2) / keep.sum(-2).clamp(min=1)  # culprit
        return self.score(h).squeeze(-1)


torch.manual_seed(1)
model = Chooser()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    lengths = torch.randint(3, 10, (6, 4, 1))
    lengths[0, 0], lengths[2, 3] = 9, 0
    ids = torch.randint(1, 80, (6, 4, 9)) * (torch.arange(9) < lengths)
    loss = nn.functional.cross_entropy(model(ids), torch.randint(0, 4, (6,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
