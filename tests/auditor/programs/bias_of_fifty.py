# rule: loss-at-start, exactly
# says: the bias begins too large
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 5)
        nn.init.uniform_(self.head.bias, *(-50, 50) if BUG else (-0.1, 0.1))  # culprit

    def forward(self, x):
        return self.head(self.body(x).relu())


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(15, 6), torch.arange(15) % 5
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
