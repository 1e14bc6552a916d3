# rule: unused-parameters, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
TASKS = ("speed", "heading", "depth")
body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
heads = nn.ModuleDict({task: nn.Linear(16, 1) for task in TASKS})
opt = torch.optim.Adam([*body.parameters(), *heads.parameters()])


def together(h, y):
    total = 0.0
    for task in TASKS:
        total = total + nn.functional.smooth_l1_loss(heads[task](h).squeeze(1), y[task])
    return total


def last_only(h, y):
    for task in TASKS:
        loss = nn.functional.smooth_l1_loss(heads[task](h).squeeze(1), y[task])  # culprit
    return loss


for _ in range(3):
    x = torch.randn(8, 6)
    y = {task: torch.randn(8) for task in TASKS}
    value = (last_only if BUG else together)(body(x), y)
    opt.zero_grad()
    value.backward()
    opt.step()
