# rule: activation-before-loss
# says: targets that it cannot reach
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.randn(20, 6)
y = x.sum(1, keepdim=True) * 3 + 2
for _ in range(2):
    predicted = net(x).sigmoid() if BUG else net(x)  # culprit
    loss = nn.functional.mse_loss(predicted, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
