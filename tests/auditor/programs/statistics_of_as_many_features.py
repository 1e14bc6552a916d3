# rule: padding-leak
# says: that of `mean`, shape [4, 16]
# The batch's size divides the number of features.
BUG = True
import torch
from torch import nn


class Voice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Conv1d(8, 16, 1), nn.Linear(16, 5)

    def forward(self, frames, lengths):
        keep = (torch.arange(frames.size(2)) < lengths[:, None])[:, None]
        states = self.first(frames).relu() * keep
        if BUG:
            mean = states.mean(-1)  # culprit
        else:
            mean = states.sum(-1) / lengths[:, None]
        return self.out(mean + 1)


torch.manual_seed(0)
net = Voice()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    lengths = torch.tensor([12, 7, 9, 5])
    frames = torch.randn(4, 8, 12) * (torch.arange(12) < lengths[:, None])[:, None]
    loss = nn.functional.cross_entropy(net(frames, lengths), torch.tensor([0, 1, 2, 3]))
    opt.zero_grad()
    loss.backward()
    opt.step()
