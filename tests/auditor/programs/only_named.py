# rule: gradients-kept
# says: with its parentheses
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(6):
    if BUG:
        opt.zero_grad  # culprit
    else:
        opt.zero_grad()
    net(torch.randn(8, 6)).pow(2).mean().backward()
    opt.step()
