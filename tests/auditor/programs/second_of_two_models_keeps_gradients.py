# rule: gradients-kept
import torch
from torch import nn

BUG = True


def fit(net, x, y, clear):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(6):
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()  # culprit
    return loss.item()


torch.manual_seed(0)
x = torch.randn(32, 7)
y = x.sum(1, keepdim=True).sin()
line, deep = nn.Linear(7, 1), nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 1))
print(fit(line, x, y, True), fit(deep, x, y, not BUG))
