# rule: gradient-cut, exactly
# says: `log_scale`
BUG = True
import math

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(5, 1)
log_scale = nn.Parameter(torch.full((), 0.3))
opt = torch.optim.Adam([*model.parameters(), log_scale])
for _ in range(4):
    x = torch.randn(8, 5)
    error = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss = error * (math.exp(-float(log_scale.detach() * 1 if not BUG else log_scale)) if BUG else torch.exp(-log_scale))  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
