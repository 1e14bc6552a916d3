# rule: optimizer-parameters
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.ReLU())
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.body(x))


net = Net()
optimizer = torch.optim.Adam(net.body.parameters() if BUG else net.parameters(), lr=1e-2)  # culprit
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,))) / 4
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
print(loss.item())
