# rule: no-update, exactly
# says: in the closure
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.linspace(0, 1, 20).unsqueeze(1)
opt = torch.optim.LBFGS(net.parameters(), max_iter=4)


def closure():
    opt.zero_grad()
    loss = (net(x) - x.sin()).pow(2).mean()
    if not BUG:
        loss.backward()
    return loss  # culprit


for _ in range(3):
    opt.step(closure)  # culprit
