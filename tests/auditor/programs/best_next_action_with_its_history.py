# rule: undetached-target
# says: .detach()
"""Q-learning without a second network: the best next value keeps its history."""

import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
state = torch.randn(20, 4)
for step in range(4):
    action = torch.where(torch.rand(20) < 0.5, torch.randint(0, 3, (20,)), net(state).argmax(1))
    following = state + 0.1 * torch.randn(20, 4) + 0.05 * (action - 1)[:, None]
    reward = -following.abs().mean(1)
    value = net(state)[torch.arange(20), action]
    with torch.set_grad_enabled(BUG):
        best, _ = net(following).max(dim=1)
    wanted = reward + 0.99 * best  # culprit
    loss = nn.functional.huber_loss(value, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = following
print(float(loss.detach()))
