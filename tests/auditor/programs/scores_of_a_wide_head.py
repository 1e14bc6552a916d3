# rule: loss-at-start
# says: the weights begin too wide
# says: the weights, shape [10, 64], have a root mean square of
BUG = True
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(20, 64), nn.Linear(64, 10)
        self.head.weight.data.normal_(0, 4.0 if BUG else 0.1)  # culprit

    def forward(self, x):
        return self.head(self.body(x).relu())


torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
x, y = torch.randn(12, 20), torch.randint(0, 10, (12,))
for _ in range(2):
    loss = nn.functional.nll_loss(net(x).log_softmax(-1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
