# rule: no-update, exactly
# says: from step 5 of 24 on
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: max(0.0, 1 - epoch / 4))  # culprit
for _ in range(4):
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(2, (8,))).backward()
        optimizer.step()
        if BUG:
            schedule.step()
    if not BUG:
        schedule.step()
