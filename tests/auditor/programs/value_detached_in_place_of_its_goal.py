# rule: gradient-cut, exactly
BUG = True
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
target = copy.deepcopy(online)
opt = torch.optim.Adam(online.parameters(), 1e-3)
for _ in range(4):
    state, action, reward, after = torch.randn(16, 4), torch.randint(0, 3, (16, 1)), torch.randn(16), torch.randn(16, 4)
    value = online(state).gather(1, action).squeeze(1)
    goal = reward + 0.99 * target(after).amax(1)
    if BUG:
        loss = F.smooth_l1_loss(value.detach(), goal)  # culprit
    else:
        loss = F.smooth_l1_loss(value, goal.detach())
    opt.zero_grad()
    loss.backward()
    opt.step()
