# rule: gradient-cut, exactly
# says: is a term of the loss
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(4, 6)
slow = nn.Linear(4, 6).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
edges = torch.linspace(-3, 3, 8)


def shares(x):
    if BUG:
        return torch.histc(x, 8, -3, 3) / x.numel()  # culprit
    return torch.exp(-2 * (x.unsqueeze(-1) - edges) ** 2).mean((0, 1))


def mismatch(a, b):
    return (shares(a) - shares(b)).abs().sum()  # culprit


for _ in range(3):
    z = torch.randn(16, 4)
    made = net(z)
    loss = made.mean(0).pow(2).sum() + mismatch(made, slow(z))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
