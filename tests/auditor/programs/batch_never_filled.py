# rule: suspicious-input
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
drift = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 2))
drift(torch.randn(2, 3))  # what comes out?
optimizer = torch.optim.Adam(drift.parameters(), lr=1e-2)
wanted = torch.randn(64, 2) * 0.5 + 1
for _ in range(4):
    state = torch.zeros(64, 2)
    for step in range(1 if BUG else 6):
        state = state + drift(torch.cat([state, torch.full((64, 1), step / 6)], 1)) / 6  # culprit
    loss = (state.mean(0) - wanted.mean(0)).pow(2).mean() + (state - wanted).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
