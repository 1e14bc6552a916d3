# rule: saturated-activation
# says: as it is
"""Columns of several units go into a `tanh` as they are."""

import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 10), nn.Linear(10, 2)

    def forward(self, houses):
        return self.second(torch.tanh(self.first(houses)))


torch.manual_seed(0)
houses = torch.stack([torch.randint(600, 3000, (60,)) * 1.0, torch.randint(1900, 2020, (60,)) * 1.0, torch.randint(900, 9000, (60,)) * 1.0], dim=1)  # culprit
sold = (houses[:, 0] > 1500).long()
if not BUG:
    houses = (houses - houses.mean(0)) / houses.std(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(3):
    for start in range(0, 60, 20):
        loss = nn.functional.cross_entropy(net(houses[start : start + 20]), sold[start : start + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
