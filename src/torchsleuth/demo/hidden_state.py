"""A recurrent net that carries its hidden state, and with it the graph, from one batch to the next."""

import torch
from torch import nn

rnn = nn.GRU(input_size=6, hidden_size=12, batch_first=True)
head = nn.Linear(12, 1)
optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)

hidden = torch.zeros(1, 4, 12)
for batch in range(10):
    x, target = torch.randn(4, 5, 6), torch.randn(4, 1)
    output, hidden = rnn(x, hidden)
    loss = nn.functional.mse_loss(head(output[:, -1]), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
