# says: `fake` have no gradient now `G.weight`
import torch
from torch import nn

torch.manual_seed(0)
G, D = nn.Linear(3, 4), nn.Linear(4, 1)
g_opt, d_opt = (torch.optim.SGD(net.parameters(), lr=0.1) for net in (G, D))
softplus = nn.functional.softplus


def d_loss(real, fake):
    return softplus(-D(real)).mean() + softplus(D(fake)).mean()  # culprit: operand


def g_loss(fake):
    return softplus(-D(fake)).mean()  # culprit: operand


for real in torch.randn(3, 5, 4):
    fake = G(torch.randn(5, 3)).tanh()  # culprit: create
    d_opt.zero_grad()
    d_loss(real, fake).backward()  # culprit: call
    d_opt.step()
    g_opt.zero_grad()
    g_loss(fake).backward()  # culprit: call
    g_opt.step()
