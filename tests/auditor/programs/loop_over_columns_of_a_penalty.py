# rule: loop-in-step, exactly
import torch
from torch import nn

BUG = True


def roughness(curve):
    if not BUG:
        return ((curve[:, 1:] - curve[:, :-1]) ** 2).mean(0).sum()
    total = 0
    for i in range(1, curve.size(1)):  # culprit
        total = total + ((curve[:, i] - curve[:, i - 1]) ** 2).mean()  # culprit
    return total


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 40))
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    curve = net(torch.randn(16, 6))
    loss = (curve - 1).pow(2).mean() + 0.1 * roughness(curve)
    opt.zero_grad()
    loss.backward()
    opt.step()
