# rule: wrong-average, exactly
# says: lie in the memory of one parameter
"""An average of the weights that is kept in `detach()`ed tensors, which are no copies."""

import torch
from torch import nn

BUG = True


class Average:
    def __init__(self, model, decay):
        self.decay, self.kept = decay, []
        for parameter in model.parameters():
            held = parameter.detach()  # culprit
            self.kept.append(held if BUG else held.clone())

    @torch.no_grad()
    def follow(self, model):
        for mine, theirs in zip(self.kept, model.parameters(), strict=True):
            mine.copy_(self.decay * mine + (1 - self.decay) * theirs)  # culprit


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 2))
average = Average(model, 0.99)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, labels = torch.randn(40, 5), torch.randint(0, 2, (40,))
for x, y in zip(rows.split(10), labels.split(10), strict=True):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    average.follow(model)
print(float(loss.detach()))
