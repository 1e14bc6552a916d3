# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn


class Hard(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 9)

    def forward(self, x):
        p = torch.sigmoid(self.lin(x))
        hard = (p > 0.5).float()
        return hard + (p - p.detach()).detach() if BUG else hard + p - p.detach()  # culprit


torch.manual_seed(0)
net = nn.Sequential(Hard(), nn.Linear(9, 3))
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
