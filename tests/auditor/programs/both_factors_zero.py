# rule: no-update
# says: `a` and `b` are zero in every element together
import torch
from torch import nn

BUG = True
torch.manual_seed(0)


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.zeros(4, base.in_features) if BUG else 0.1 * torch.randn(4, base.in_features))  # culprit
        self.b = nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


net = nn.Sequential(Adapted(nn.Linear(6, 16)), nn.ReLU(), Adapted(nn.Linear(16, 3)))
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2)
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
