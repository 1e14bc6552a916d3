# rule: lost-duplicates
"""Samples drawn twice: of the values that a memory keeps for them one is enough; of their counts none may be lost."""

import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)
x, y = torch.randn(40, 5), torch.randint(0, 3, (40,))


class Remembered(nn.Module):
    """Compares each prediction with the moving average of those before it."""

    def __init__(self, samples, classes):
        super().__init__()
        self.average, self.draws = torch.zeros(samples, classes), torch.zeros(samples)

    def forward(self, index, scores, labels):
        p = scores.softmax(1).clamp(1e-4, 1 - 1e-4)
        self.average[index] = 0.7 * self.average[index] + 0.3 * p.detach()
        if BUG:
            self.draws[index] += 1.0  # culprit
        else:
            self.draws.index_add_(0, index, torch.ones(len(index)))
        return F.cross_entropy(scores, labels) + 3 * (1 - (self.average[index] * p).sum(1)).log().mean()


model, criterion = nn.Linear(5, 3), Remembered(40, 3)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
chains, priorities = torch.randn(40, 5), torch.ones(40)
for _ in range(3):
    index = torch.multinomial(priorities, 24, replacement=True)
    chains[index] = (chains[index].clone() * 0.9 + 0.1 * torch.randn(24, 5)).clamp(-3, 3)
    loss = criterion(index, model(x[index] + 0.1 * chains[index]), y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    priorities[index] = torch.rand(24) + 0.1
print(round(loss.item(), 4), int(criterion.draws.sum()))
