import torch
from torch import nn
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(32, 1))
og = torch.optim.RMSprop(G.parameters(), 2e-4)
od = torch.optim.RMSprop(D.parameters(), 2e-4)
for it in range(4):
    for _ in range(2):
        with torch.no_grad():
            fake = G(torch.randn(16, 8))
        ld = D(fake).mean() - D(torch.randn(16, 16)).mean()
        od.zero_grad()
        ld.backward()
        od.step()
        with torch.no_grad():
            for p in D.parameters():
                p.clamp_(-0.1, 0.1)
    lg = -D(G(torch.randn(16, 8))).mean()
    og.zero_grad()
    lg.backward()
    og.step()
