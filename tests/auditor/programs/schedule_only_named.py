# rule: idle-schedule
# says: names the method and does not call it
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
if BUG:
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
else:
    decay = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
for _ in range(3):
    for _ in range(2):
        x = torch.randn(16, 6)
        loss = F.cross_entropy(net(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    if BUG:
        schedule.step  # culprit
    else:
        decay.step()
