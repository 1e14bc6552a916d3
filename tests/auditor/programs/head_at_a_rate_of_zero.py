# rule: resting-group, exactly
# says: `head.weight`
"""A rate for each depth: what was divided as integers leaves nothing for the last group."""

import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body, self.head = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 3)

    def forward(self, rows):
        return self.head(torch.relu(self.body(torch.relu(self.stem(rows)))))


def groups(net, rate=0.1):
    parts = [net.stem, net.body, net.head]
    return [{"params": part.parameters(), "lr": rate * ((3 - depth) // 2 if BUG else (3 - depth) / 2)} for depth, part in enumerate(parts)]  # culprit


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(groups(net), lr=0.1)
rows, labels = torch.randn(48, 6), torch.randint(0, 3, (48,))
for _ in range(3):
    for x, y in zip(rows.split(16), labels.split(16), strict=True):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
