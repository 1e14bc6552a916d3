# rule: no-update
# says: the learning rate is 0
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
groups = [{"params": layer.parameters(), "lr": 0.1 * (0 if BUG else 0.9) ** (depth + 1)} for depth, layer in enumerate([net[2], net[0]])]
optimizer = torch.optim.SGD(groups, lr=0.1)  # culprit
for _ in range(4):
    x, y = torch.randn(8, 6), torch.randint(0, 2, (8,))
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
