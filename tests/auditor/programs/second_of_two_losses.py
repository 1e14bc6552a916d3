# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn


class Tasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 24), nn.Tanh())
        self.kind, self.size = nn.Linear(24, 4), nn.Linear(24, 1)

    def forward(self, x, task):
        h = self.trunk(x)
        if task == "kind":
            return self.kind(h)
        size = self.size(h).squeeze(-1)
        return size.round().long() if BUG else size  # culprit


torch.manual_seed(0)
model, scale = Tasks(), torch.ones((), requires_grad=True)
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 10), "kind"), torch.randint(4, (8,))).backward()
    (scale * (model(torch.randn(8, 10), "size") - torch.rand(8)).pow(2).mean()).backward()
    optimizer.step()
