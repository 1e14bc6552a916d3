# rule: padding-leak, exactly
BUG = True
import torch
from torch import nn


class Norm(nn.Module):
    def forward(self, x, real):
        n = x.shape[1] * (x.shape[2] if BUG else real.sum((1, 2), keepdim=True))
        mean = (x if BUG else x * real).sum((1, 2), keepdim=True) / n  # culprit
        return (x - mean) * real


class Denoiser(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.into, self.norm, self.between, self.out = nn.Conv1d(6, channels, 1), Norm(), nn.Conv1d(channels, channels, 1), nn.Conv1d(channels, 6, 1)

    def forward(self, x, mask):  # (batch, channels, time), (batch, 1, time)
        h = self.into(x)
        return self.out(h + torch.relu(self.between(self.norm(h, mask)))) * mask


torch.manual_seed(0)
m = Denoiser()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = (torch.arange(18) < torch.tensor([18, 11, 14, 7])[:, None]).float()[:, None]
    x = torch.randn(4, 6, 18) * mask
    loss = ((m(x, mask) - x) ** 2 * mask).sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
