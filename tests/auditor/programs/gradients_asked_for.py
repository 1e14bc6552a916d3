# rule: silent-broadcast
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
weights = list(net.parameters())
for _ in range(3):
    x, y = torch.randn(16, 4), torch.randn(16)
    out = net(x) if BUG else net(x).squeeze(1)
    loss = ((out - y) ** 2).mean()  # culprit
    for weight, gradient in zip(weights, torch.autograd.grad(loss, weights)):
        weight.grad = gradient
    optimizer.step()
print(loss.item())
