# rule: gradient-cut
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
latent = 8
G = nn.Sequential(nn.Linear(latent, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
for it in range(4):
    real = torch.randn(32, 2) * 0.3 + 1
    z = torch.randn(32, latent)
    # generator
    opt_g.zero_grad()
    fake = G(z)
    scores = D(fake.detach() if BUG else fake)  # culprit
    g_loss = bce(scores, torch.ones(32, 1))
    g_loss.backward()
    opt_g.step()
    # discriminator
    opt_d.zero_grad()
    d_loss = bce(D(real), torch.ones(32, 1)) + bce(D(G(z).detach()), torch.zeros(32, 1))
    d_loss.backward()
    opt_d.step()
print(g_loss.item(), d_loss.item())
