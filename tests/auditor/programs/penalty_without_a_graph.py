# rule: gradient-cut, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
critics_step = torch.optim.Adam(critic.parameters(), 1e-4)
generators_step = torch.optim.Adam(generator.parameters(), 1e-4)


def penalty(real, fake):
    share = torch.rand(real.size(0), 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=not BUG)  # culprit
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


for _ in range(3):
    real, fake = torch.randn(16, 2), generator(torch.randn(16, 4)).detach()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(real, fake)  # culprit
    critics_step.zero_grad()
    loss.backward()
    critics_step.step()
    loss = -critic(generator(torch.randn(16, 4))).mean()
    generators_step.zero_grad()
    loss.backward()
    generators_step.step()
