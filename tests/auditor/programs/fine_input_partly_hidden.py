import torch
from torch import nn

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Sequential(nn.Linear(10, 6), nn.ReLU()), nn.Linear(6, 10)

    def forward(self, x):
        keep = torch.bernoulli(torch.full_like(x, 0.7))
        return self.decode(self.encode(x * keep) / 0.5) * 2


net = Denoiser()
opt = torch.optim.Adam(net.parameters())
for _ in range(3):
    x = torch.randn(12, 10)
    opt.zero_grad()
    (net(x) - x).pow(2).mean().backward()
    opt.step()
