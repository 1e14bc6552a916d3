import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
C = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
og, oc = torch.optim.Adam(G.parameters(), 1e-4, betas=(0.0, 0.9)), torch.optim.Adam(C.parameters(), 1e-4, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    eps = torch.rand(real.size(0), 1)
    x = (eps * real + (1 - eps) * fake).requires_grad_(True)
    g = torch.autograd.grad(C(x).sum(), x, create_graph=True)[0]
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


for it in range(6):
    real = torch.randn(20, 2) + 3
    fake = G(torch.randn(20, 4))
    loss_c = C(fake).mean() - C(real).mean() + 10 * gradient_penalty(real, fake.detach())
    oc.zero_grad()
    loss_c.backward()
    oc.step()
    if it % 5 == 4:
        loss_g = -C(G(torch.randn(20, 4))).mean()
        og.zero_grad()
        loss_g.backward()
        og.step()
print(loss_c.item())
