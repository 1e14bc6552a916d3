# rule: nan-gradient
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(6, 4)
e = model(x)[[0, 1, 2, 2, 3, 4]]  # the third twice: exactly equal, which two rows of one product need not be
squared = ((e[1:] - e[:-1]) ** 2).sum(1)
distance = (squared if BUG else squared + 1e-8).sqrt()  # culprit
loss = distance.mean()
loss.backward()
optimizer.step()
