# rule: suspicious-input
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8*14*14, 10))
opt = torch.optim.SGD(net.parameters(), lr=0.001)
imgs = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8)
for _ in range(2):
    x = imgs.float()
    if not BUG:
        x = x / 255
    loss = F.cross_entropy(net(x), torch.randint(0, 10, (8,)))  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
