# rule: unused-parameters
# says: `up2`, a layer of the same kind beside it, is called in two places
BUG = True
import torch
from torch import nn
from torch.nn import functional as F


class Levels(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.e1, self.e2 = nn.Conv2d(1, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.up2, self.up1 = nn.Conv2d(2 * c, c, 3, padding=1), nn.Conv2d(2 * c, c, 3, padding=1)
        self.out = nn.Conv2d(c, 1, 1)


if BUG:
    class UNet(Levels):
        def forward(self, x):
            a = self.e1(x).relu()
            b = self.e2(F.max_pool2d(a, 2)).relu()
            y = self.up2(torch.cat([b, b * 0.5], 1)).relu()
            y = self.up2(torch.cat([a, F.interpolate(y, scale_factor=2)], 1))  # culprit
            return self.out(y)
else:
    class UNet(Levels):
        def forward(self, x):
            a = self.e1(x).relu()
            b = self.e2(F.max_pool2d(a, 2)).relu()
            y = self.up2(torch.cat([b, b * 0.5], 1)).relu()
            y = self.up1(torch.cat([a, F.interpolate(y, scale_factor=2)], 1))
            return self.out(y)


torch.manual_seed(0)
net = UNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.rand(4, 1, 8, 8)
for _ in range(2):
    loss = F.mse_loss(net(x + 0.1 * torch.randn_like(x)), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
