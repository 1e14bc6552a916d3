# rule: no-update, exactly
# says: advances the schedule: 7 times in the first 7 steps
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=1, gamma=0.1)  # culprit
for _ in range(3):
    for at in range(8):
        x = torch.randn(6, 4)
        loss = (net(x) - x[:, :1]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if BUG or at == 7:
            schedule.step()  # culprit
