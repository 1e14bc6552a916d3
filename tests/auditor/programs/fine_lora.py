import torch
from torch import nn


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


torch.manual_seed(0)
net = nn.Sequential(LoRA(nn.Linear(5, 8)), nn.ReLU(), LoRA(nn.Linear(8, 3)))
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 5)), torch.arange(6) % 3)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
