# rule: padding-leak
# says: `pad` is not given here
BUG = True
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(d, 2, batch_first=True), nn.LayerNorm(d)

    def forward(self, latent, x, pad=None):
        return self.norm(latent + self.attention(latent, x, x, key_padding_mask=pad)[0])


class Perceiver(nn.Module):
    def __init__(self):
        super().__init__()
        self.latent, self.up = nn.Parameter(torch.randn(4, 16)), nn.Linear(6, 16)
        self.first, self.second, self.head = Reader(16), Reader(16), nn.Linear(16, 3)

    def forward(self, x, lengths):
        pad = torch.arange(x.shape[1]) >= lengths[:, None]
        h = self.up(x)
        z = self.first(self.latent.expand(len(x), -1, -1), h, pad)
        if BUG:
            z = self.second(z, h)  # culprit
        else:
            z = self.second(z, h, pad=pad)
        return self.head(z.mean(1))


torch.manual_seed(0)
lengths = torch.tensor([9, 4, 7])
x = torch.randn(3, 9, 6) * (torch.arange(9) < lengths[:, None])[..., None]
net = Perceiver()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(x, lengths), torch.tensor([0, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
