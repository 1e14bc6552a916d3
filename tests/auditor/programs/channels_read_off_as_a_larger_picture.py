# rule: view-for-transpose, exactly
# says: a row of 18 is 2 rows of one channel
# says: `F.pixel_shuffle(…, 2)`
import torch
from torch import nn

BUG = True


class Larger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.up = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x):
        y = self.up(torch.relu(self.body(x)))
        return y.view(3, 1, 18, 18) if BUG else nn.functional.pixel_shuffle(y, 2)  # culprit


torch.manual_seed(0)
net = Larger()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    low = torch.rand(3, 1, 9, 9)
    loss = (net(low) - nn.functional.interpolate(low, scale_factor=2)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
