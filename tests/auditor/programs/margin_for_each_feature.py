# rule: softmax-axis
# says: each feature gets a distance over the batch
BUG = True
import torch
from torch import nn


def apart(a, b):
    return ((a - b) ** 2).sum(0 if BUG else 1).add(1e-8).sqrt()  # culprit


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 6))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    anchor = torch.randn(9, 10)
    a, p, n = net(anchor), net(anchor + 0.1 * torch.randn(9, 10)), net(torch.randn(9, 10))
    loss = (apart(a, p) - apart(a, n) + 0.5).clamp(min=0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
