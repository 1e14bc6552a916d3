import torch
from torch import nn

cell = nn.Linear(6, 6)
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
state = torch.zeros(4, 6)
for step in range(3):
    h = torch.tanh(cell(torch.randn(4, 6)) + state)
    loss = h.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = h.detach()
