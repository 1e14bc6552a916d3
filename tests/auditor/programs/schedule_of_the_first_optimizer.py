# rule: idle-schedule
# says: the optimizer that it holds has taken no step
BUG = True
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

torch.manual_seed(0)


def built(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)


def train(model):
    optimizer = built(model)
    if not BUG:
        model[0].requires_grad_(False)
        optimizer = built(model)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.5)  # culprit
    if BUG:
        model[0].requires_grad_(False)
        optimizer = built(model)
    for _ in range(4):
        for _ in range(2):
            x = torch.randn(16, 6)
            loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()


train(nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3)))
