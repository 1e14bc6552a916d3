# `torch.normal` draws actions; the loss takes their density, computed anew from the same parameters.
import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
log_std = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([*policy.parameters(), log_std], lr=1e-3)
for _ in range(4):
    state = torch.randn(16, 4)
    action = torch.normal(policy(state), log_std.exp())
    reward = -(action.detach() - state[:, :2]).pow(2).sum(-1)
    surprise = ((action - policy(state)) / log_std.exp()).pow(2) / 2 + log_std
    loss = (surprise.sum(-1) * (reward - reward.mean())).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
