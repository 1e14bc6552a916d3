# rule: softmax-axis
BUG = True
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(24, 24) for _ in range(4))
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (3, 8)).transpose(1, 2) for f in (self.q, self.k, self.v))
        axis = 2 if BUG else 3
        q = q / q.norm(dim=axis, keepdim=True).clamp(min=1e-6)  # culprit
        k = k / k.norm(dim=axis, keepdim=True).clamp(min=1e-6)  # culprit
        weights = (q @ k.mT * self.scale).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 24), Attention(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(2):
    x = torch.randn(6, 9, 5)
    loss = ((model(x).squeeze(-1) - x.sum(-1)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
