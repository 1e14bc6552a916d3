# rule: view-for-transpose, exactly
# says: each of the 16 parts is 48 numbers
BUG = True
import torch
from torch import nn


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.out = nn.Linear(48, 16), nn.Linear(16, 5)

    def forward(self, x):
        B, C, H, W = x.shape
        if BUG:
            parts = x.reshape(B, 16, C * 16)  # culprit
        else:
            parts = x.reshape(B, C, H // 4, 4, W // 4, 4).permute(0, 2, 4, 1, 3, 5).reshape(B, 16, -1)
        return self.out(self.project(parts).relu().mean(1))


torch.manual_seed(0)
net = Patches()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.rand(4, 3, 16, 16)), torch.randint(0, 5, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
