# rule: causal-leak
# says: The loss compares position t with the input at t + 1
BUG = True
import torch
from torch import nn


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 16, batch_first=True, bidirectional=BUG)  # culprit
        self.out = nn.Linear(32 if BUG else 16, 3)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


torch.manual_seed(0)
net = Forecast()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    series = torch.randn(6, 15, 3).cumsum(1)
    loss = (net(series[:, :-1]) - series[:, 1:]).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
