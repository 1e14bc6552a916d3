# rule: gradient-cut
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 3), torch.randint(0, 2, (6,))
losses = []
for i in range(0, 6, 2):
    losses.append(nn.functional.cross_entropy(model(x[i : i + 2]), y[i : i + 2]))
if BUG:
    loss = torch.tensor(losses).mean()  # culprit
    loss.requires_grad_()
else:
    loss = torch.stack(losses).mean()
loss.backward()
optimizer.step()
