# rule: padding-leak
# says: and is kept here for all rows, also for those whose steps are padding
BUG = True
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.LSTMCell(6, 16), nn.Linear(16, 3)

    def forward(self, x, lengths):
        h = c = x.new_zeros(x.size(0), 16)
        for t in range(x.size(1)):
            new_h, new_c = self.cell(x[:, t], (h, c))
            real = (t < lengths)[:, None]
            h, c = (new_h, new_c) if BUG else (torch.where(real, new_h, h), torch.where(real, new_c, c))  # culprit
        return self.out(h)


torch.manual_seed(0)
lengths = torch.tensor([9, 4, 6, 3, 7])
x = torch.randn(5, 9, 6) * (torch.arange(9) < lengths[:, None])[..., None]
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x, lengths), torch.tensor([0, 1, 2, 1, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
