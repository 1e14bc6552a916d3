# rule: scaled-gradients
# says: 65536 times too large
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    optimizer.zero_grad()
    scaler.scale(nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,)))).backward()
    if not BUG:
        for p in net.parameters():
            p.grad.div_(scaler.get_scale())
    optimizer.step()  # culprit
