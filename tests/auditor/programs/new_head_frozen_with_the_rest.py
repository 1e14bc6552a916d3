# rule: frozen-at-random, exactly
# says: `fc.weight` and `fc.bias`
"""A new last layer for other classes is put in before everything but the norms is frozen."""

import torch
from torch import nn

BUG = True


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.stem, self.norm, self.fc = nn.Linear(6, 16), nn.LayerNorm(16), nn.Linear(16, classes)

    def forward(self, rows):
        return self.fc(torch.relu(self.norm(self.stem(rows))))


def adapted(classes):
    net = Net(100)
    net.load_state_dict(Net(100).state_dict())
    net.fc = nn.Linear(16, classes)  # culprit
    net.requires_grad_(False)  # culprit
    net.norm.requires_grad_(True)
    if not BUG:
        net.fc.requires_grad_(True)
    return net


torch.manual_seed(0)
net = adapted(3)
optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
rows, labels = torch.randn(48, 6), torch.randint(0, 3, (48,))
for _ in range(3):
    for x, y in zip(rows.split(16), labels.split(16), strict=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
