# rule: gradient-cut, exactly
# says: makes a new tensor of these numbers
import numpy as np
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
trunk, heads = nn.Sequential(nn.Linear(8, 16), nn.ReLU()), nn.ModuleList([nn.Linear(16, 1) for _ in range(3)])
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=1e-3)
for _ in range(4):
    x = torch.randn(16, 8)
    losses = [(head(trunk(x)).squeeze(-1) - x[:, k]).pow(2).mean() for k, head in enumerate(heads)]
    if BUG:
        numbers = [one.item() for one in losses]  # culprit
        loss = torch.tensor(np.mean(numbers), requires_grad=True)  # culprit
    else:
        print(np.mean([one.item() for one in losses]))
        loss = torch.stack(losses).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
