# rule: silent-broadcast, exactly
# says: [8], one number for each sample, is laid along the last axis of [8, 1, 8, 8]
import torch
from torch import nn
import torch.nn.functional as F

BUG = True
torch.manual_seed(0)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 20), 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time, self.inp, self.out = nn.Embedding(20, 4), nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x, t):
        return self.out(F.silu(self.inp(x) + self.time(t)[:, :, None, None]))


net = Denoiser()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    image, t = torch.randn(8, 1, 8, 8), torch.randint(20, (8,))
    noise = torch.randn_like(image)
    share = kept[t] if BUG else kept[t].view(-1, 1, 1, 1)
    noisy = share.sqrt() * image + (1 - share).sqrt() * noise  # culprit
    optimizer.zero_grad()
    F.mse_loss(net(noisy, t), noise).backward()
    optimizer.step()
