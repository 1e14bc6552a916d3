# rule: padding-leak, exactly
# says: the last position of every row is left out
# says: changing the last position of every row of `x` (position 6 of row 1) moved no output of any row
BUG = True
import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Linear(5, 16), nn.Linear(16, 1)

    def forward(self, x, lengths):
        count = lengths - 1 if BUG else lengths
        mask = torch.arange(x.size(1)) < count[:, None]  # culprit
        h = torch.relu(self.inner(x)) * mask[..., None]
        return self.out(h.sum(1) / mask.sum(1, keepdim=True)).squeeze(1)


torch.manual_seed(0)
lengths = torch.tensor([12, 7, 4, 9, 12, 6])
x = torch.randn(6, 12, 5) * (torch.arange(12) < lengths[:, None])[..., None]
net = Regressor()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.mse_loss(net(x, lengths), torch.randn(6))
    opt.zero_grad()
    loss.backward()
    opt.step()
