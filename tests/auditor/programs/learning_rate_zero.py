# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0 if BUG else 0.0, momentum=0.9)
if not BUG:
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
loss = model(torch.randn(6, 4)).pow(2).mean()
loss.backward()
optimizer.step()  # culprit
