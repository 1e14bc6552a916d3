# rule: gradient-cut, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
writer = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 9))
optimizer = torch.optim.Adam(writer.parameters(), lr=1e-3)
for _ in range(4):
    chances = writer(torch.randn(8, 6)).log_softmax(-1)
    token = torch.multinomial(chances.exp(), 1)
    score = chances.gather(1, token).squeeze(1)
    reward = (token.squeeze(1) % 2 == 0).float()
    loss = -(reward * (score.data if BUG else score)).mean()  # culprit
    if BUG:
        loss.requires_grad_()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
