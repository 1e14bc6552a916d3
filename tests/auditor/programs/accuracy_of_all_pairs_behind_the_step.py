# rule: silent-broadcast
# says: [10, 1] and [10] broadcast to [10, 10]
BUG = True
import torch
from torch import nn


def accuracy(scores, y):
    return ((scores > 0) == y).float().mean().item()  # culprit


torch.manual_seed(0)
x = torch.randn(60, 4)
y = x[:, 0] > 0
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for rows in torch.arange(60).split(10):
    scores = net(x[rows])
    loss = nn.functional.binary_cross_entropy_with_logits(scores.squeeze(1), y[rows].float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    right = accuracy(scores.detach() if BUG else scores.detach().squeeze(1), y[rows])
