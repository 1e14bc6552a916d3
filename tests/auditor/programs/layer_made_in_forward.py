# rule: unregistered-parameters, exactly
# says: made anew in each forward pass
import torch
from torch import nn

BUG = True
torch.manual_seed(0)


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(12, 4), nn.Linear(4, 12)

    def forward(self, x):
        narrow = nn.Linear(12, 4) if BUG else self.down  # culprit
        return x + self.up(narrow(x).relu())  # culprit


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.adapter, self.last = nn.Linear(6, 12), Adapter(), nn.Linear(12, 1)
        if BUG:
            del self.adapter.down

    def forward(self, x):
        return self.last(self.adapter(self.first(x)))


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    x = torch.randn(8, 6)
    loss = (net(x) - x.mean(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
