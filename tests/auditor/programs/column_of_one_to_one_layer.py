# rule: silent-broadcast, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
x = torch.linspace(-1, 1, 20).unsqueeze(1)
y = 3 * x.squeeze(1) + 1
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    line = model(x)  # culprit
    scaled = 0.5 * (line if BUG else line[:, 0])
    loss = ((scaled - y) ** 2).mean()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
