# rule: scaled-gradients
# says: the limit is 1024 times smaller than meant
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for i in range(8):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,))) / 2
    scaler.scale(loss).backward()
    if i % 2:
        for p in net.parameters():
            p.grad.div_(2)
        if not BUG:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # culprit
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
