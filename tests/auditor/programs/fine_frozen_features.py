import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        with torch.no_grad():
            h = self.features(x)
        return self.head(h)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.head.parameters(), lr=0.1)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(6, 3, 8, 8)), torch.arange(6) % 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
