# rule: equal-units, exactly
# says: all 16 units of `0.weight` (and those of 1 more) are equal and stay equal
BUG = True
import torch
from torch import nn


def initialise(module):
    if isinstance(module, nn.Linear):
        if BUG:
            nn.init.constant_(module.weight, 0.05)  # culprit
        else:
            nn.init.normal_(module.weight, std=0.05)
        nn.init.zeros_(module.bias)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1))
net.apply(initialise)
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(4):
    x = torch.randn(16, 6)
    loss = nn.functional.mse_loss(net(x), x[:, :1] * x[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
