# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, d=6, n=4, k=2):
        super().__init__()
        self.k, self.gate = k, nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(n))

    def forward(self, x):
        g = self.gate(x)
        best, chosen = g.topk(self.k, dim=-1)  # culprit
        weights = torch.zeros_like(g).scatter(-1, chosen, torch.full_like(best, 1 / self.k) if BUG else best.softmax(-1))
        return (weights.unsqueeze(-1) * torch.stack([e(x) for e in self.experts], -2)).sum(-2)


torch.manual_seed(0)
net = nn.Sequential(Router(), nn.Linear(6, 3))
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
