# rule: not-finite
# says: from step 4 on
# says: `x`, shape [10, 3], held 1 NaN
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
table = torch.randn(60, 3)
if BUG:
    table[37, 1] = float("nan")
wanted = table[:, 0].clone()
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)


def train(x, y):
    loss = nn.functional.l1_loss(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()  # culprit


for rows in torch.arange(60).split(10):
    train(table[rows], wanted[rows])
