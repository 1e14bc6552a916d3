# A limit that nothing reaches: the norm is asked for, after the step, to be printed. And gradients that are cleared by hand.
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for _ in range(4):
    x = torch.randn(16, 6)
    loss = (model(x).squeeze(1) - 20 * x.sum(1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(f"{nn.utils.clip_grad_norm_(model.parameters(), float('inf')).item():.3f}")
    for p in model.parameters():
        p.grad.zero_()
    optimizer.zero_grad()
