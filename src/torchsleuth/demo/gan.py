"""A GAN whose discriminator is updated between two backward passes through the same graph."""

import torch
from torch import nn


class Discriminator(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(16, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2))
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.features(x))


generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
discriminator = Discriminator()
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4)

for step in range(100):
    fake = generator(torch.randn(64, 8))
    verdict = discriminator(fake)

    loss_d = nn.functional.softplus(verdict).mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()

    loss_g = nn.functional.softplus(-verdict).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
