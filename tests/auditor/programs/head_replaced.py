# rule: optimizer-parameters
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x).relu())


torch.manual_seed(0)
net = Net()
if not BUG:
    net.head = nn.Linear(8, 2)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
if BUG:
    net.head = nn.Linear(8, 2)  # culprit
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
for step in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print(loss.item())
