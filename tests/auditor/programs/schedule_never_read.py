# rule: idle-schedule, exactly
# says: nothing in the program's source reads the name
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
if BUG:
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 3)  # culprit
else:
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 3)
for epoch in range(3):
    for _ in range(2):
        x = torch.randn(16, 6)
        loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    if not BUG:
        decay.step()
