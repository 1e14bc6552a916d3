# rule: optimizer-parameters, exactly
BUG = True
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(5, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1))
if BUG:
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)  # culprit
    weight_norm(net[0])  # culprit
    weight_norm(net[2])  # culprit
else:
    weight_norm(net[0])
    weight_norm(net[2])
    opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for _ in range(3):
    x = torch.randn(12, 5, 20)
    opt.zero_grad()
    (net(x).squeeze(1) - x[:, 0].mean(-1)).square().mean().backward()
    opt.step()
