# rule: no-update
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
warmup = 100
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, s // warmup if BUG else (s + 1) / warmup))
for step in range(12):
    x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()  # culprit
    sched.step()
print(loss.item())
