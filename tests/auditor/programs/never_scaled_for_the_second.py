# rule: scaled-gradients, exactly
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
critic = nn.Sequential(nn.Linear(2, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
g_opt, d_opt = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (gen, critic))
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
bce = nn.BCEWithLogitsLoss()
for _ in range(4):
    fake = gen(torch.randn(16, 4))
    d_loss = bce(critic(torch.randn(16, 2) + 2), torch.ones(16, 1)) + bce(critic(fake.detach()), torch.zeros(16, 1))
    d_opt.zero_grad()
    scaler.scale(d_loss).backward()
    scaler.step(d_opt)
    g_loss = bce(critic(fake), torch.ones(16, 1))
    g_opt.zero_grad()
    (g_loss if BUG else scaler.scale(g_loss)).backward()  # culprit
    scaler.step(g_opt)  # culprit
    scaler.update()
