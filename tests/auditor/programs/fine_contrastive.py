import torch
import torch.nn.functional as F
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 8), nn.Linear(6, 8)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, a, b):
        a, b = F.normalize(self.left(a), dim=-1), F.normalize(self.right(b), dim=-1)
        return self.scale.exp() * a @ b.T


torch.manual_seed(0)
model = Pair()
optimizer = torch.optim.Adam(model.parameters())
logits = model(torch.randn(6, 5), torch.randn(6, 6))
goal = torch.arange(6)
loss = (F.cross_entropy(logits, goal) + F.cross_entropy(logits.T, goal)) / 2
loss.backward()
optimizer.step()
