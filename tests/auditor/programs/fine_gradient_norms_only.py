import torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
norms = []
for i in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 6)).sum().backward()
    norms.append(sum(p.grad.norm() ** 2 for p in net.parameters()).sqrt().item())
optimizer.step()
print(norms)
