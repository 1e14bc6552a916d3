import torch
from torch import nn


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bank", torch.zeros(8, 4))
        self.at = 0
        self.project = nn.Linear(4, 4)

    def forward(self, x):
        z = self.project(x)
        near = z @ self.bank.T.detach().clone()
        self.bank[self.at : self.at + len(x)] = z
        self.at = (self.at + len(x)) % 8
        return near.logsumexp(1).mean()


torch.manual_seed(0)
memory = Memory()
for step in range(3):
    loss = memory(torch.randn(4, 4))
    loss.backward()
