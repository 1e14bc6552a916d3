# rule: silent-broadcast, exactly
# says: one number for each sample, is laid along the last axis of [7, 7]
import torch
import torch.nn.functional as F
from torch import nn

BUG = True
B, T = 7, 7


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(20, 16), nn.LSTM(16, 16, batch_first=True), nn.Linear(16, 20)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


torch.manual_seed(0)
words = Words()
series = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(1))
opt = torch.optim.Adam(words.parameters())
for _ in range(2):
    ids = torch.randint(0, 20, (7, 8))
    given, asked = ids[:, :-1], ids[:, 1:]
    kept = (torch.rand(given.shape[0]) > 0.3).float()
    cost = F.cross_entropy(words(given).transpose(1, 2), asked, reduction="none")
    loss = (cost * (kept if BUG else kept[:, None])).sum()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
opt = torch.optim.Adam(series.parameters())
for _ in range(2):
    x = torch.randn(B, T, 3)
    weight = torch.rand(B)
    loss = ((series(x) - x.sum(-1)) ** 2 * (weight if BUG else weight[:, None])).mean()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
