# rule: equal-units, exactly
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.mix, self.head = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8, 4)
        for layer in (self.stem, self.mix):
            if BUG:
                layer.weight.data.fill_(0.1)  # culprit
            layer.bias.data.zero_()

    def forward(self, x):
        return self.head(self.mix(self.stem(x).relu()).relu().mean((2, 3)))


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(torch.rand(8, 1, 9, 9)), torch.randint(4, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
