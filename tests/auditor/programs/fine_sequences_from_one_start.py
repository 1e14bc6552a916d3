import torch
from torch import nn

torch.manual_seed(0)
# Sequences from nothing: the first step is given the same start for all of them, the others what came before.
start, cell, out = nn.Parameter(torch.randn(1, 6)), nn.LSTMCell(6, 12), nn.Linear(12, 6)
optimizer = torch.optim.Adam([start, *cell.parameters(), *out.parameters()], lr=1e-2)
for _ in range(4):
    wanted = torch.randn(8, 7, 6).cumsum(1)
    given, state, loss = start.expand(8, -1), (torch.zeros(8, 12), torch.zeros(8, 12)), 0.0
    for t in range(7):
        state = cell(given, state)
        loss = loss + nn.functional.mse_loss(out(state[0]), wanted[:, t])
        given = wanted[:, t]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
