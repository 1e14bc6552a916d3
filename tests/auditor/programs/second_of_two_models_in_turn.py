# rule: batch-mixing, exactly
import torch
import torch.nn.functional as F
from torch import nn

BUG = True


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.out(torch.relu(self.inner(x)).mean(1))


class Weighted(Mean):
    def __init__(self):
        super().__init__()
        self.score = nn.Linear(16, 1)

    def forward(self, x):
        h = torch.relu(self.inner(x))
        weights = torch.softmax(self.score(h), dim=0 if BUG else 1)  # culprit
        return self.out((weights * h).sum(1))


def fit(model, x, y):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
x, y = torch.randn(12, 7, 6), torch.randint(0, 3, (12,))
print([fit(kind(), x, y) for kind in (Mean, Weighted)])
