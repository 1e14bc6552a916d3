# says: `policy(states).max(1)` integer
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
policy, target = nn.Linear(4, 2), nn.Linear(4, 2)
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
states, following, rewards = torch.randn(8, 4), torch.randn(8, 4), torch.rand(8)

chosen = policy(states).max(1).indices.float()  # culprit: lost-grad
with torch.no_grad():
    expected = rewards + 0.99 * target(following).max(1).values
loss = F.smooth_l1_loss(chosen, expected)
optimizer.zero_grad()
loss.backward()  # culprit: call
