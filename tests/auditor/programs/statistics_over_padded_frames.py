# rule: padding-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Utterances(nn.Module):
    def __init__(self, mels=8, width=16):
        super().__init__()
        self.inner, self.out = nn.Linear(mels, width), nn.Linear(width, 4)

    def forward(self, feats, lengths):
        keep = (torch.arange(feats.size(1)) < lengths[:, None]).unsqueeze(-1)
        if BUG:
            mean = feats.mean(dim=1, keepdim=True)  # culprit
            spread = feats.std(dim=1, keepdim=True)  # culprit
        else:
            mean = (feats * keep).sum(1, keepdim=True) / keep.sum(1, keepdim=True)
            spread = (((feats - mean) ** 2 * keep).sum(1, keepdim=True) / keep.sum(1, keepdim=True)).sqrt()
        h = F.gelu(self.inner((feats - mean) / (spread + 1e-5)))
        return self.out((h * keep).sum(1) / lengths.unsqueeze(1))


torch.manual_seed(0)
lengths = torch.tensor([30, 12, 21, 17])
model = Utterances()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(2):
    feats = (torch.randn(4, 30, 8) * 2 - 4) * (torch.arange(30) < lengths[:, None]).unsqueeze(-1)
    loss = F.cross_entropy(model(feats, lengths), torch.tensor([0, 1, 2, 3]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
