# rule: gradient-cut
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    losses = []
    for k in range(3):
        x, y = torch.randn(8, 10), torch.randn(8, 1)
        losses.append(F.mse_loss(model(x), y))
    if BUG:
        loss = torch.tensor(losses, requires_grad=True).mean()  # culprit
    else:
        loss = torch.stack(losses).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
