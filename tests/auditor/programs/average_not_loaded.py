# rule: no-update, exactly
# says: Load the dictionary when the loop is done
import copy

import torch
from torch import nn

BUG = True


class Averaged:
    def __init__(self, model):
        self.model, self.slow = model, copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, keep=0.9):
        fast, slow = self.model.state_dict(), self.slow.state_dict()
        mean = self.slow.state_dict()
        for name, value in slow.items():
            if BUG:
                mean[name] = keep * value + (1 - keep) * fast[name]  # culprit
            else:
                value.copy_(keep * value + (1 - keep) * fast[name])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
averaged = Averaged(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(6):
    x = torch.randn(16, 4)
    with torch.no_grad():
        goal = averaged.slow(x).softmax(-1)
    optimizer.zero_grad()
    (nn.functional.cross_entropy(model(x), x[:, :2].argmax(1)) + (model(x).softmax(-1) - goal).pow(2).mean()).backward()
    optimizer.step()
    averaged.update()
