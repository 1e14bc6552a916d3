# rule: padding-leak, exactly
# says: `ignore` is not given here
# says: was given no `key_padding_mask`
BUG = True
import torch
from torch import nn


class Read(nn.Module):
    def __init__(self, d, features):
        super().__init__()
        self.up, self.attention, self.norm = nn.Linear(features, d), nn.MultiheadAttention(d, 2, batch_first=True), nn.LayerNorm(d)

    def forward(self, z, x, ignore=None):
        x = self.up(x)
        return self.norm(z + self.attention(z, x, x, key_padding_mask=ignore, need_weights=False)[0])  # culprit


class Latents(nn.Module):
    """As many latents as a third of the events, rounded: their axis could be taken for one of thinned out positions."""

    def __init__(self, d=16, features=5, latents=4):
        super().__init__()
        self.z, self.first, self.second, self.out = nn.Parameter(torch.randn(latents, d)), Read(d, features), Read(d, features), nn.Linear(d, 1)
        self.inner = nn.TransformerEncoderLayer(d, 2, 32, 0.0, batch_first=True)

    def forward(self, events, lengths):
        ignore = torch.arange(events.shape[1]) >= lengths[:, None]
        z = self.z.expand(len(events), -1, -1)
        if BUG:
            z = self.first(z, events)  # culprit
        else:
            z = self.first(z, events, ignore)
        z = self.second(self.inner(z), events, ignore)
        return self.out(z.mean(1)).squeeze(-1)


torch.manual_seed(0)
lengths = torch.tensor([11, 7, 9, 4, 8])
events = torch.randn(5, 11, 5).masked_fill((torch.arange(11) >= lengths[:, None])[..., None], 0.0)
net = Latents()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = (net(events, lengths) - events.sum((1, 2)) / lengths).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
