# rule: activation-before-loss
# says: no score is below zero
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(10, 20), nn.Linear(20, 7)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu() if BUG or layer is self.layers[0] else layer(x)  # culprit
        return x


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(12, 10), torch.randint(0, 7, (12,))
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
