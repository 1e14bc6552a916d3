# says: keeps `h` and `c`
import torch
from torch import nn


class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(2, 3)
        self._state = None

    @property
    def state(self):
        if self._state is None:
            self._state = torch.zeros(1, 3), torch.zeros(1, 3)
        return self._state

    def forward(self, chunk):
        h, c = self.state
        for frame in chunk:
            h, c = self.cell(frame, (h, c))  # culprit: create
        self._state = h, c  # culprit: create
        return h


torch.manual_seed(0)
net = Stream()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for chunk in torch.randn(3, 4, 1, 2):
    loss = net(chunk).square().mean()
    opt.zero_grad()
    loss.backward()  # culprit: call
    opt.step()
