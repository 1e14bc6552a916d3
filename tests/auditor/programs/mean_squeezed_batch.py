# rule: batch-mixing
BUG = True
import torch
from torch import nn


class SEBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(c, c // 2), nn.ReLU(), nn.Linear(c // 2, c), nn.Sigmoid())

    def forward(self, x):
        s = x.mean(dim=(0, 2, 3)) if BUG else x.mean(dim=(2, 3))  # culprit
        g = self.fc(s)
        return x * (g[None, :, None, None] if BUG else g[:, :, None, None])


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), SEBlock(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.rand(6, 3, 10, 10)), torch.randint(0, 3, (6,)))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
