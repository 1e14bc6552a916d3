import torch
from torch import nn


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.heads = nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])

    def encode(self, x):
        return torch.relu(self.trunk(x))


def step(model, opt, x):
    h = model.encode(x)
    opt.zero_grad()
    for head in model.heads:
        loss = head(h).mean()
        loss.backward(retain_graph=True)
    opt.step()


model = Shared()
step(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(3, 4))
