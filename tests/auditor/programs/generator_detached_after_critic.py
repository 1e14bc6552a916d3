# rule: gradient-cut
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
D = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
opt_d, opt_g = torch.optim.Adam(D.parameters(), 2e-4), torch.optim.Adam(G.parameters(), 2e-4)
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)
for step in range(6):
    real, fake = torch.randn(16, 2) + 2, G(torch.randn(16, 6)).detach()  # culprit
    loss_d = bce(D(real), ones) + bce(D(fake), zeros)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    if not BUG:
        fake = G(torch.randn(16, 6))
    loss_g = bce(D(fake), ones)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
print(loss_d.item(), loss_g.item())
