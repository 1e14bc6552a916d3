import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    net(torch.randn(4, 3)).pow(2).mean().backward()
    opt.step()
    print(net.weight.grad.abs().max())
    opt.zero_grad()
