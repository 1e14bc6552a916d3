# says: `net.rnn.weight_hh` brought the old graph along
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.q = nn.GRUCell(2, 3), nn.Linear(3, 1)

    def forward(self, x, h):
        h = self.rnn(x, h)  # culprit: save # culprit: create
        return self.q(h), h


torch.manual_seed(0)
net, seen = Net(), []
opt = torch.optim.SGD(net.parameters(), lr=0.1)
h = torch.zeros(1, 3)
for t in range(6):
    x = torch.randn(1, 2)
    out, h = net(x, h)
    seen.append((x, h))
    if t > 2:
        hidden = torch.cat([old for _, old in seen[-3:]])  # culprit: operand
        loss = net(torch.randn(3, 2), hidden)[0].square().mean()
        opt.zero_grad()
        loss.backward(retain_graph=True)
        opt.step()  # culprit: mutate
