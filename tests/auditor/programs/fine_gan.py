import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
D = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
bce = nn.BCEWithLogitsLoss()
for _ in range(2):
    real, fake = torch.randn(5, 6), G(torch.randn(5, 4))
    od.zero_grad()
    (bce(D(real), torch.ones(5, 1)) + bce(D(fake.detach()), torch.zeros(5, 1))).backward()
    od.step()
    og.zero_grad()
    bce(D(fake), torch.ones(5, 1)).backward()
    og.step()
