# rule: zero-gradient, exactly
# says: `bernoulli` draws zeros and ones
BUG = True
import torch
from torch import nn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(7))
        self.fc = nn.Linear(7, 2)

    def forward(self, x):
        p = torch.sigmoid(self.logit)
        return self.fc(x * (torch.bernoulli(p) if BUG else p))  # culprit


torch.manual_seed(0)
net = Masked()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(5):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 7)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
