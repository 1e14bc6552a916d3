# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # culprit
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for step in range(5):
    x = torch.randn(16, 4)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    if not BUG:
        optimizer.step()
    scheduler.step()
    print(loss.item())
