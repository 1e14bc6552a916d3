# rule: gradient-cut, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
taught = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
maker = nn.Linear(5, sum(p.numel() for p in taught.parameters()))
optimizer = torch.optim.Adam(maker.parameters(), lr=1e-2)
for step in range(6):
    x, code = torch.randn(16, 3), torch.randn(5)
    parts = maker(code).split([p.numel() for p in taught.parameters()])
    made = {name: part.view(p.shape) for (name, p), part in zip(taught.named_parameters(), parts, strict=True)}
    if BUG:
        for name, p in taught.named_parameters():
            p.data = made[name]  # culprit
        out = taught(x)
    else:
        out = torch.func.functional_call(taught, made, (x,))
    optimizer.zero_grad()
    (out - code[:2] * x[:, :2]).pow(2).mean().backward()
    optimizer.step()
