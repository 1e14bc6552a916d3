# rule: gradient-cut, exactly
# says: a gradient of zero
import torch
from torch import nn
import torch.nn.functional as F

BUG = True
torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 6), nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        mean, log_variance = self.enc(x).chunk(2, -1)
        std = (0.5 * log_variance).exp()
        z = torch.normal(mean, std) if BUG else mean + std * torch.randn_like(std)  # culprit
        kl = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(-1)
        return self.dec(z), kl


model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    x = torch.randn(16, 8)
    restored, kl = model(x)
    loss = (F.mse_loss(restored, x, reduction="none").sum(-1) + kl).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
