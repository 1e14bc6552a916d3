# rule: padding-leak
# says: scores of padded keys are filled with 0 here, not hidden
BUG = True
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.score, self.out = nn.Embedding(60, 16), nn.Linear(16, 1), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        h = torch.tanh(self.table(ids))
        mask = torch.arange(ids.size(1)) < lengths[:, None]
        scores = self.score(h).squeeze(-1)
        scores = scores.masked_fill(~mask, 0.0 if BUG else -1e9)  # culprit
        return self.out((scores.softmax(1)[..., None] * h).sum(1))


torch.manual_seed(0)
lengths = torch.tensor([8, 3, 5, 7])
ids = torch.randint(1, 60, (4, 8)) * (torch.arange(8) < lengths[:, None])
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.tensor([0, 1, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
