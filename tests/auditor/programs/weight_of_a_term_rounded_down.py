# rule: zero-gradient, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
DISTANT, TASKS = 0.0, 3 if BUG else 1
body, head, aside, far = nn.Linear(6, 16), nn.Linear(16, 2), nn.Linear(16, 1), nn.Linear(16, 1)
opt = torch.optim.Adam([p for part in (body, head, aside, far) for p in part.parameters()])
share = 1 // TASKS  # culprit
for _ in range(4):
    x, y, z = torch.randn(10, 6), torch.randint(0, 2, (10,)), torch.randn(10)
    h = torch.relu(body(x))
    loss = nn.functional.cross_entropy(head(h), y)
    loss = loss + share * (aside(h).squeeze(1) - z).pow(2).mean()  # culprit
    loss = loss + DISTANT * far(h).pow(2).mean()  # switched off
    opt.zero_grad()
    loss.backward()
    opt.step()
