# rule: unregistered-parameters, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


def weight(tensor):
    return tensor.requires_grad_() if BUG else nn.Parameter(tensor)


class Scaled(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.gamma = weight(torch.full((width,), 1e-2))  # culprit

    def forward(self, x):
        return x + self.gamma * torch.relu(self.layer(x))  # culprit


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.logs = weight(torch.zeros(2))  # culprit

    def forward(self, first, second):
        return (torch.stack([first, second]) * torch.exp(-self.logs) + self.logs).sum()  # culprit


net, criterion = nn.Sequential(nn.Linear(5, 12), Scaled(12), Scaled(12), nn.Linear(12, 2)), Weighted()
opt = torch.optim.Adam([*net.parameters(), *criterion.parameters()])
for _ in range(3):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    out = net(x)
    loss = criterion(nn.functional.cross_entropy(out, y), out.pow(2).mean())
    opt.zero_grad()
    loss.backward()
    opt.step()
