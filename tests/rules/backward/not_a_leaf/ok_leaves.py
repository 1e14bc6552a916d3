import copy

import torch
from torch import nn

torch.manual_seed(0)
z = torch.randn(2, 3).double().requires_grad_()
opt = torch.optim.SGD([z], lr=0.1)
z.pow(2).sum().backward()
opt.step()
z.requires_grad_(False)
net = nn.Linear(3, 3)
net.last = net(torch.randn(2, 3)).detach()
print(copy.deepcopy(net).last.shape)
