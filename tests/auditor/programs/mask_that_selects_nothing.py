# rule: zero-gradient, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.kind, self.depth = nn.Linear(6, 12), nn.Linear(12, 2), nn.Linear(12, 1)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.kind(h), self.depth(h).squeeze(1)


def masked(guess, depth, valid):
    return ((guess - depth) ** 2 * valid).sum() / valid.sum().clamp(min=1)  # culprit


net = Two()
opt = torch.optim.Adam(net.parameters())
for _ in range(4):
    x, y, depth = torch.randn(10, 6), torch.randint(0, 2, (10,)), torch.rand(10)
    valid = (depth > (80 if BUG else 0)).float()  # culprit
    kind, guess = net(x)
    loss = nn.functional.cross_entropy(kind, y) + 0.5 * masked(guess, depth, valid)
    opt.zero_grad()
    loss.backward()
    opt.step()
