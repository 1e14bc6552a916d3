# rule: padding-in-loss, exactly
# says: drops 4 of 12 samples
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 3)
criterion = nn.CrossEntropyLoss(ignore_index=0 if BUG else -100)  # culprit
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(12, 6), torch.arange(12) % 3
for _ in range(2):
    loss = criterion(net(x), y)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
