# rule: silent-broadcast, exactly
# says: one number for each sample, is laid along the last axis of [16, 16]
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(50, 8)
        self.net = nn.Sequential(nn.Linear(24, 32), nn.SiLU(), nn.Linear(32, 16))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], -1))


net = Noise()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    clean, t = torch.randn(16, 16), torch.randint(0, 50, (16,))
    noise = torch.randn_like(clean)
    share = kept[t] if BUG else kept[t][:, None]
    noisy = share.sqrt() * clean + (1 - share).sqrt() * noise  # culprit
    loss = nn.functional.mse_loss(net(noisy, t), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
