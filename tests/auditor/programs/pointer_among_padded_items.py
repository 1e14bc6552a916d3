# rule: padding-leak, exactly
# says: `cross_entropy` chooses among positions, and padded ones are not ruled out
# says: of the 9 alternatives are padding
BUG = True
import torch
from torch import nn


class Pointer(nn.Module):
    """Chooses one item of a variable-size set."""

    def __init__(self, f=5, d=24):
        super().__init__()
        self.item = nn.Sequential(nn.Linear(f, d), nn.ReLU(), nn.Linear(d, d))
        self.ctx = nn.Linear(d, d)
        self.v = nn.Linear(d, 1, bias=False)

    def forward(self, items, count):
        h = self.item(items)
        real = torch.arange(items.size(1))[None] < count[:, None]
        pooled = (h * real[..., None]).sum(1) / count[:, None]
        s = self.v(torch.tanh(h + self.ctx(pooled)[:, None])).squeeze(-1)  # culprit
        return s if BUG else s.masked_fill(~real, float("-inf"))


torch.manual_seed(0)
net = Pointer()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    count = torch.tensor([9, 4, 6, 3, 8])
    items = torch.randn(5, 9, 5) * (torch.arange(9)[None] < count[:, None])[..., None]
    target = torch.tensor([1, 2, 5, 0, 7])
    loss = nn.functional.cross_entropy(net(items, count), target)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
