import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4))
target = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), 0.05)
for _ in range(6):
    state, action, reward, after = torch.randn(12, 6), torch.randint(0, 4, (12, 1)), torch.randn(12), torch.randn(12, 6)
    value = net(state).gather(1, action).squeeze(1)
    with torch.no_grad():
        best = net(after).argmax(1, keepdim=True)
        goal = reward + 0.9 * target(after).gather(1, best).squeeze(1)
    print(F.l1_loss(value.detach(), goal).item(), (best.squeeze(1) == value.detach().long()).float().mean().item())
    opt.zero_grad()
    F.smooth_l1_loss(value, goal).backward()
    opt.step()
