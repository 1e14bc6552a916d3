# rule: suspicious-input, exactly
# says: made whole
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
ages, x = torch.arange(40) * 2, torch.randn(40, 6)
y = ages // (100 if BUG else 20)  # culprit
net = nn.Linear(6, 4)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
