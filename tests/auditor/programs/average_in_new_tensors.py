# rule: no-update, exactly
import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 3))


online, target = net(), net()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
for _ in range(6):
    state, action, reward, after = torch.randn(16, 8), torch.randint(0, 3, (16, 1)), torch.randn(16), torch.randn(16, 8)
    with torch.no_grad():
        goal = reward + 0.9 * target(after).amax(1)
    loss = F.smooth_l1_loss(online(state).gather(1, action).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
        if BUG:
            slow.data.mul(0.95).add(fast.data, alpha=0.05)  # culprit
        else:
            slow.data.mul_(0.95).add_(fast.data, alpha=0.05)
