# rule: result-dropped
# says: `clamp_`
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6))
D = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
og, od = torch.optim.RMSprop(G.parameters(), 5e-4), torch.optim.RMSprop(D.parameters(), 5e-4)
for _ in range(4):
    real, fake = torch.randn(32, 6) * 2 + 1, G(torch.randn(32, 4)).detach()
    loss = D(fake).mean() - D(real).mean()
    od.zero_grad()
    loss.backward()
    od.step()
    for p in D.parameters():
        if BUG:
            p.data.clamp(-0.05, 0.05)  # culprit
        else:
            p.data.clamp_(-0.05, 0.05)
    loss = -D(G(torch.randn(32, 4))).mean()
    og.zero_grad()
    loss.backward()
    og.step()
