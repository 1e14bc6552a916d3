# rule: padding-leak, exactly
# says: in `frames` (all other rows have less
BUG = True
import torch
from torch import nn


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Conv1d(6, 16, 1), nn.Linear(16, 3)

    def forward(self, spectrum, frames):
        h = torch.relu(self.layer(spectrum))
        keep = (torch.arange(h.size(2)) < frames[:, None]).unsqueeze(1)
        total = (h * keep).sum(2)
        return self.out(total / (frames.max() if BUG else frames[:, None]))  # culprit


torch.manual_seed(0)
frames = torch.tensor([20, 12, 7, 16])
spectrum = torch.randn(4, 6, 20) * (torch.arange(20) < frames[:, None]).unsqueeze(1)
net = Pooled()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(spectrum, frames), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
