import torch
from torch import nn
torch.manual_seed(0)
enc = nn.Linear(10, 4)
opt = torch.optim.Adam(enc.parameters())
for _ in range(2):
    x, y = enc(torch.randn(12, 10)), torch.randn(12, 4)
    C = torch.cdist(x, y) ** 2
    f, g = torch.zeros(12), torch.zeros(12)
    eps = 0.5
    la = -torch.log(torch.tensor(12.0))
    for _ in range(10):
        f = -eps * torch.logsumexp((g - C) / eps + la, dim=1)
        g = -eps * torch.logsumexp((f[:, None] - C) / eps + la, dim=0)
    P = torch.exp((f[:, None] + g - C) / eps + 2 * la)
    loss = (P * C).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
