# rule: suspicious-input, exactly
# says: it gives -1 for 0 and -2 for 1
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
for _ in range(4):
    state, after, reward, over = torch.randn(16, 4), torch.randn(16, 4), torch.randn(16), (torch.rand(16) < 0.3).long()
    with torch.no_grad():
        ahead = critic(after).squeeze(-1)
        goal = reward + 0.9 * ahead * ((~over) if BUG else (~over.bool()))  # culprit
    loss = (critic(state).squeeze(-1) - goal).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
