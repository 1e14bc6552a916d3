import torch
from torch import nn

rnn = nn.GRUCell(3, 4)
head = nn.Linear(4, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
h = torch.zeros(2, 4)
for step in range(3):
    h = rnn(torch.randn(2, 3), h.detach())
    loss = head(h).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
