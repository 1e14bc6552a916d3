import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(5, 2)
opt = torch.optim.AdamW(net.parameters(), 1e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: s / 10)
for _ in range(3):
    loss = nn.functional.cross_entropy(net(torch.randn(8, 5)), torch.randint(0, 2, (8,)))
    opt.zero_grad(); loss.backward(); opt.step(); sched.step()
print(loss.item())
