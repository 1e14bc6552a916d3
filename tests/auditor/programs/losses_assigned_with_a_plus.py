# rule: unused-parameters, exactly
# says: `=+` assigns
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(6, 8)
heads = nn.ModuleList(nn.Linear(8, 2) for _ in range(3))
opt = torch.optim.SGD([*body.parameters(), *heads.parameters()], 0.1)


def added(h, ys):
    total = 0
    for head, y in zip(heads, ys):
        total += nn.functional.cross_entropy(head(h), y)
    return total


def assigned(h, ys):
    total = 0
    for head, y in zip(heads, ys):
        total =+ nn.functional.cross_entropy(head(h), y)  # culprit
    return total


for _ in range(3):
    h = torch.relu(body(torch.randn(5, 6)))
    loss = (assigned if BUG else added)(h, [torch.randint(0, 2, (5,)) for _ in heads])
    opt.zero_grad()
    loss.backward()
    opt.step()
