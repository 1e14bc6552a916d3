# rule: state-not-copied, exactly
# says: after 8 optimizer steps
import copy

import torch
from torch import nn

BUG = True


class Stopper:
    def __init__(self):
        self.best, self.state = float("inf"), None

    def look(self, value, model):
        if value < self.best and not BUG:
            self.best, self.state = value, copy.deepcopy(model.state_dict())
        elif value < self.best:
            self.best, self.state = value, model.state_dict()  # culprit


torch.manual_seed(0)
model, stopper = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1)), Stopper()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(8):
    x = torch.randn(32, 5)
    loss = (model(x) - x.pow(2).sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    stopper.look(loss.item(), model)
model.load_state_dict(stopper.state)  # culprit
