# rule: zero-gradient, exactly
# says: over one element gives the same for every input
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
last = nn.LayerNorm(1) if BUG else nn.Identity()  # culprit
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1), last)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(8):
    x = torch.randn(6, 5)
    loss = (net(x) - x.sum(1, keepdim=True)).pow(2).mean()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
