# rule: softmax-axis, exactly
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 1)

    def forward(self, x):
        score = self.last(torch.relu(self.first(x)))
        return torch.softmax(score, dim=1) if BUG else torch.sigmoid(score)  # culprit


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    x = torch.randn(6, 5)
    loss = nn.functional.binary_cross_entropy(net(x), (x.sum(1, keepdim=True) > 0).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
