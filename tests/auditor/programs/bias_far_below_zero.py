# rule: zero-gradient, exactly
# says: no gradient arrives where its input is above zero
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 10), nn.Linear(10, 2)
        nn.init.constant_(self.first.bias, -20.0 if BUG else 0.1)  # culprit

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))  # culprit


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
