# rule: no-update, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    x = torch.randn(6, 4)
    loss = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    for p in net.parameters():
        p.grad = torch.zeros_like(p.grad) if BUG else p.grad.clamp(-1, 1)  # culprit
    opt.step()  # culprit
