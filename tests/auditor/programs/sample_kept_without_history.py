# rule: gradient-cut
BUG = True
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12))
dis = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_d, opt_g = torch.optim.Adam(dis.parameters(), 2e-4), torch.optim.Adam(gen.parameters(), 2e-4)
for step in range(4):
    real = torch.randn(6, 12)
    with torch.no_grad() if BUG else contextlib.nullcontext():
        fake = gen(torch.randn(6, 8))
    opt_d.zero_grad()
    (F.softplus(-dis(real)) + F.softplus(dis(fake.detach()))).mean().backward()
    print(fake.detach().mean().item() > 9)  # read out for a log: no part of any loss
    opt_d.step()
    opt_g.zero_grad()
    loss = F.softplus(-dis(fake)).mean()  # culprit
    loss.backward()
    opt_g.step()
