# rule: suspicious-input, exactly
# says: and gives 0 for
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
pixels = torch.randint(0, 256, (16, 1, 8, 8), dtype=torch.uint8)
x = (pixels // 255 if BUG else pixels / 255).float()  # culprit
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x), torch.arange(16) % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
