# rule: saturated-activation
# says: `gate.bias` holds numbers from -20 to -20
"""A gate whose bias was filled with -20: it is shut, and no gradient worth the name opens it."""

import torch
from torch import nn

BUG = True


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.gate, self.out = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 1)
        nn.init.constant_(self.gate.bias, -20.0 if BUG else -1.0)  # culprit

    def forward(self, rows):
        opened = self.gate(rows).sigmoid()
        return self.out(torch.relu(self.into(rows)) * opened).squeeze(1)


torch.manual_seed(0)
net = Gated()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
rows = torch.randn(64, 8)
wanted = rows[:, 0] + 0.5
for _ in range(3):
    for x, y in zip(rows.split(16), wanted.split(16), strict=True):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
print(float(loss.detach()))
