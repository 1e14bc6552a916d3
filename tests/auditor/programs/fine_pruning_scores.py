import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
scores = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
for step in range(4):
    net.zero_grad()
    nn.functional.cross_entropy(net(torch.randn(16, 8)), torch.randint(3, (16,))).backward()
    for name, p in net.named_parameters():
        scores[name] += (p * p.grad).abs().detach()
print({name: int((s > s.median()).sum()) for name, s in scores.items()})
