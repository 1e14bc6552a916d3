import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, -1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


torch.manual_seed(0)
model = VAE()
optimizer = torch.optim.Adam(model.parameters())
x = torch.rand(7, 6)
out, mu, logvar = model(x)
kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(-1).mean()
loss = F.binary_cross_entropy_with_logits(out, x, reduction="none").sum(-1).mean() + kl
loss.backward()
optimizer.step()
