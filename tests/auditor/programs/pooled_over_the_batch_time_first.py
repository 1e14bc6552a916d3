# rule: batch-mixing
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Sensors(nn.Module):
    def __init__(self, features=6, width=16):
        super().__init__()
        self.rnn, self.score, self.out = nn.GRU(features, width), nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, x):  # (time, batch, features)
        h, _ = self.rnn(x)
        weights = self.score(h).softmax(dim=1 if BUG else 0)  # culprit
        return self.out((weights * h).sum(0))


torch.manual_seed(0)
model = Sensors()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = F.cross_entropy(model(torch.randn(15, 6, 6)), torch.tensor([0, 1, 2, 1, 0, 2]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
