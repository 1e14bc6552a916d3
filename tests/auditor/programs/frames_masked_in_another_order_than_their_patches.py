# rule: padding-leak
# says: the mask hides other positions than the padding
# says: in row 1 the mask hides positions 4 to 5, 9 to 10, 14 to 15 and 19 to 20, and the padding stands at positions 13 to 20
BUG = True
import torch
from torch import nn


class Clip(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.patches, self.layer, self.out = nn.Conv2d(3, d, 4, 4), nn.TransformerEncoderLayer(d, 2, 32, 0.0, batch_first=True), nn.Linear(d, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, d))

    def forward(self, clip, shown):
        b, t = clip.shape[:2]
        x = self.patches(clip.flatten(0, 1)).flatten(2).transpose(1, 2)
        n = x.shape[1]
        hidden = (~shown).repeat(1, n) if BUG else (~shown).repeat_interleave(n, 1)
        hidden = torch.cat([torch.zeros(b, 1, dtype=torch.bool), hidden], 1)  # culprit
        x = torch.cat([self.token.expand(b, -1, -1), x.reshape(b, t * n, -1)], 1)
        return self.out(self.layer(x, src_key_padding_mask=hidden)[:, 0])


torch.manual_seed(0)
shown = torch.arange(5) < torch.tensor([5, 3, 4])[:, None]
clip = torch.randn(3, 5, 3, 8, 8) * shown[:, :, None, None, None]
net = Clip()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(clip, shown), torch.tensor([0, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
