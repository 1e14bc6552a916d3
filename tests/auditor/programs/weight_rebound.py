# rule: optimizer-parameters
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
fresh = torch.randn(8, 4) * 0.1
if BUG:
    net[0].weight = nn.Parameter(fresh)  # culprit
else:
    with torch.no_grad():
        net[0].weight.copy_(fresh)
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
optimizer.zero_grad()
loss = nn.CrossEntropyLoss()(net(x), y)
loss.backward()
optimizer.step()
