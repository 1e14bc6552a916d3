# rule: activation-before-loss
# says: `sigmoid` is given the result of `sigmoid`
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(12, 10), torch.randint(0, 2, (12, 1)).float()
for _ in range(2):
    p = torch.sigmoid(net(x)) if BUG else net(x)  # culprit
    loss = nn.functional.binary_cross_entropy(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
