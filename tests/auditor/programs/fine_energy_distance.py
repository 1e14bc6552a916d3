import torch
from torch import nn
torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(3, 16), nn.ELU(), nn.Linear(16, 1))
opt = torch.optim.Adam(gen.parameters(), 1e-2)
for step in range(4):
    real = torch.randn(40) * 2 + 1
    fake = gen(torch.randn(40, 3))
    other = gen(torch.randn(40, 3))
    # energy distance between two samples: every fake against every real
    cross = (fake - real).abs().mean()
    within = (fake - other.T).abs().mean()
    loss = 2 * cross - within
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
