# rule: batch-mixing, exactly
# says: one sample meets another one's results
import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(4, 6), nn.Linear(6, 1)
        self.state = None

    def step(self, value):
        z = torch.tanh(self.lin(value))
        self.state = z if self.state is None else 0.5 * self.state + 0.5 * z  # culprit
        return self.state

    def forward(self, x):
        self.state = None
        results = []
        for i in range(x.size(0)):
            self.state = self.state if BUG else None
            for value in x[i:i + 1].squeeze(0):
                state = self.step(value)
            results.append(self.out(state))
        return torch.cat(results)


BUG = True
torch.manual_seed(0)
net = Memory()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x, y = torch.randn(7, 7, 4), torch.randn(7)
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
