import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    x, r = torch.randn(12, 10), torch.rand(12)
    s = net(x)
    d = s - s.squeeze(1)
    t = (r.unsqueeze(1) > r).float()
    loss = F.binary_cross_entropy_with_logits(d, t)
    opt.zero_grad()
    loss.backward()
    opt.step()
