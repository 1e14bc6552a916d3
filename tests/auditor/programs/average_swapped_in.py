# rule: optimizer-parameters
BUG = True
import torch
from torch import nn


def put(model, values):
    for name, value in values.items():
        owner, _, last = name.rpartition(".")
        if BUG:
            setattr(model.get_submodule(owner), last, nn.Parameter(value.clone()))  # culprit
        else:
            getattr(model.get_submodule(owner), last).data.copy_(value)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
average = {name: p.detach().clone() for name, p in net.named_parameters()}
x, y = torch.randn(32, 6), torch.randint(2, (32,))
for epoch in range(3):
    for part in range(0, 32, 16):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[part : part + 16]), y[part : part + 16]).backward()
        optimizer.step()
        for name, p in net.named_parameters():
            average[name].lerp_(p.detach(), 0.1)
    kept = {name: p.detach().clone() for name, p in net.named_parameters()}
    put(net, average)
    with torch.no_grad():
        print((net(x).argmax(1) == y).float().mean().item())
    put(net, kept)
