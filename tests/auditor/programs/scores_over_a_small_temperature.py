# rule: loss-at-start
# says: the scores are multiplied by 100
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(20, 10), torch.randint(0, 5, (20,))
for _ in range(2):
    scores = net(x) / (0.01 if BUG else 1.0)  # culprit
    loss = nn.functional.cross_entropy(scores, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
