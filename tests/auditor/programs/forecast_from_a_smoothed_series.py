# rule: causal-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Decoder(nn.Module):
    def __init__(self, features=3, width=16):
        super().__init__()
        self.inner, self.out = nn.Linear(2 * features, width), nn.Linear(width, features)
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0, batch_first=True)

    def smoothed(self, x):
        y = x.transpose(1, 2)
        if BUG:
            y = F.avg_pool1d(y, 5, stride=1, padding=2, count_include_pad=False)  # culprit
        else:
            y = F.avg_pool1d(F.pad(y, (4, 0)), 5, stride=1)
        return torch.cat([x, y.transpose(1, 2)], -1)

    def forward(self, x):
        h = self.inner(self.smoothed(x))
        return self.out(self.layer(h, src_mask=nn.Transformer.generate_square_subsequent_mask(h.size(1))))


torch.manual_seed(0)
model = Decoder()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    series = torch.randn(5, 21, 3).cumsum(1)
    loss = F.smooth_l1_loss(model(series[:, :-1]), series[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
