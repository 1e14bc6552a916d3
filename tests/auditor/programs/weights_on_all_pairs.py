# rule: silent-broadcast
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
user, item = nn.Linear(10, 8), nn.Linear(12, 8)
opt = torch.optim.Adam([*user.parameters(), *item.parameters()])
for _ in range(3):
    u, i, w = user(torch.randn(16, 10)), item(torch.randn(16, 12)), torch.rand(16)
    if BUG:
        score = torch.sigmoid(u @ i.T)
    else:
        score = torch.sigmoid((u * i).sum(-1))
    loss = -(w * score.log()).mean()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
