# rule: optimizer-parameters, exactly
# says: holds none of the parameters that the loss before its step trains
# says: `critic.0.weight`
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam((actor if BUG else critic).parameters(), lr=1e-3)  # culprit
for _ in range(5):
    state, action, reward = torch.randn(8, 3), torch.rand(8, 1), torch.randn(8, 1)
    critic_opt.zero_grad()
    nn.functional.mse_loss(critic(torch.cat([state, action], 1)), reward).backward()
    critic_opt.step()
    actor_opt.zero_grad()
    (-critic(torch.cat([state, actor(state)], 1)).mean()).backward()
    actor_opt.step()
