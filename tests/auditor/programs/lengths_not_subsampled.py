# rule: padding-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Stacked(nn.Module):
    """Four frames become one step."""

    def __init__(self, mels=6, width=16):
        super().__init__()
        self.stack, self.layer, self.out = nn.Linear(4 * mels, width), nn.TransformerEncoderLayer(width, 2, 32, batch_first=True), nn.Linear(width, 3)

    def forward(self, feats, lengths):
        b, t, f = feats.shape
        x = self.stack(feats[:, : t // 4 * 4].reshape(b, t // 4, 4 * f))
        pad = torch.arange(t // 4)[None] >= (lengths if BUG else lengths // 4)[:, None]  # culprit
        h = self.layer(x, src_key_padding_mask=pad)
        kept = (~pad).unsqueeze(-1).float()
        return self.out((h * kept).sum(1) / kept.sum(1))


torch.manual_seed(0)
lengths = torch.tensor([64, 16, 32, 20])
model = Stacked()
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(2):
    feats = torch.randn(4, 64, 6) * (torch.arange(64) < lengths[:, None]).unsqueeze(-1)
    loss = F.cross_entropy(model(feats, lengths), torch.tensor([0, 1, 2, 1]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
