# rule: gradient-cut
BUG = True
import torch
from torch import nn
from torch.autograd import Variable

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.Sigmoid(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(net.parameters()) if False else torch.optim.Rprop(net.parameters())
for epoch in range(3):
    inputs, targets = torch.rand(20, 3), torch.rand(20, 1)
    loss = nn.functional.mse_loss(net(inputs), targets)
    if BUG:
        loss = Variable(loss.data, requires_grad=True)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
