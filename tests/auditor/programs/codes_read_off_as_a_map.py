# rule: view-for-transpose
# says: from [64, 6] to [4, 6, 4, 4]
BUG = True
import torch
from torch import nn
from torch.nn import functional as F


class Codes(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.book = nn.Embedding(count, width)

    def forward(self, z):
        b, c, h, w = z.shape
        rows = z.permute(0, 2, 3, 1).reshape(-1, c)
        nearest = torch.cdist(rows, self.book.weight).argmin(1)
        code = self.book(nearest)
        code = code.view(b, c, h, w) if BUG else code.view(b, h, w, c).permute(0, 3, 1, 2)  # culprit
        loss = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        return z + (code - z).detach(), loss


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.codes, self.up = nn.Conv2d(1, 6, 4, 2, 1), Codes(10, 6), nn.ConvTranspose2d(6, 1, 4, 2, 1)

    def forward(self, x):
        code, loss = self.codes(self.down(x))
        return self.up(code), loss


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    x = torch.rand(4, 1, 8, 8)
    again, apart = net(x)
    loss = F.mse_loss(again, x) + apart
    opt.zero_grad()
    loss.backward()
    opt.step()
