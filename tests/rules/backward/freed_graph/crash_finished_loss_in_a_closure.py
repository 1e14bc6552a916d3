# says: before both calls
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
x, y = torch.randn(6, 3), torch.randn(6, 1)
loss = nn.functional.mse_loss(net(x), y)  # culprit: create


def closure():
    optimizer.zero_grad()
    loss.backward()  # culprit: call
    return loss


optimizer.step(closure)
