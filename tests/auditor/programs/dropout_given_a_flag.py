# rule: zero-gradient, exactly
# says: was given `p=True`, which counts as 1
import torch
import torch.nn.functional as F
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(10, 32), nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.first(x))
        if BUG:
            x = F.dropout(x, self.training)  # culprit
        else:
            x = F.dropout(x, training=self.training)
        return self.last(F.relu(self.second(x)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(4):
    loss = F.cross_entropy(net(torch.randn(16, 10)), torch.randint(0, 4, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
