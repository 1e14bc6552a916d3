# rule: causal-leak
# says: `pad=(0, 2)` (before, after)
# says: Pad on the left only
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Gated(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.far, self.both, self.rest, self.skip = 2 * dilation, nn.Conv1d(width, 2 * width, 3, dilation=dilation), nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, x):
        wide = F.pad(x, (0, self.far) if BUG else (self.far, 0))  # culprit
        value, gate = self.both(wide).chunk(2, 1)
        h = value.tanh() * gate.sigmoid()
        return x + self.rest(h), self.skip(h)  # the last block's first result has nowhere to go, and that is no finding


class Waves(nn.Module):
    def __init__(self, levels):
        super().__init__()
        self.levels = levels
        self.first, self.blocks, self.out = nn.Conv1d(levels, 8, 1), nn.ModuleList(Gated(8, 2**k) for k in range(3)), nn.Conv1d(8, levels, 1)

    def forward(self, wave):
        x, total = self.first(F.one_hot(wave, self.levels).float().transpose(1, 2)), 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        return self.out(total.relu())


torch.manual_seed(0)
wave = torch.randint(0, 16, (4, 33))
net = Waves(16)
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = F.cross_entropy(net(wave[:, :-1]), wave[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
