# rule: not-finite
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4), nn.ReLU())
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    p = model(torch.randn(8, 10))
    y = torch.rand(8, 4)
    loss = -(y * torch.log(p + (0 if BUG else 1e-6))).mean()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
