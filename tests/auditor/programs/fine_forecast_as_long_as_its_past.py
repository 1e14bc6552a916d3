"""24 steps in, the next 24 out, with a causal encoder: the axis of the output is not that of the input."""

import torch
import torch.nn.functional as F
from torch import nn


class Forecast(nn.Module):
    def __init__(self, features=4, width=16, steps=24):
        super().__init__()
        self.inner, self.layer, self.head = nn.Linear(features, width), nn.TransformerEncoderLayer(width, 2, 32, batch_first=True), nn.Linear(width, steps * features)

    def forward(self, past):
        mean, spread = past.mean(1, keepdim=True), past.std(1, keepdim=True) + 1e-4
        h = self.layer(self.inner((past - mean) / spread), src_mask=nn.Transformer.generate_square_subsequent_mask(past.size(1)))
        return self.head(h[:, -1]).view(past.shape) * spread + mean


torch.manual_seed(0)
model = Forecast()
optimizer = torch.optim.Adam(model.parameters())
series = torch.randn(5, 48, 4).cumsum(1)
loss = F.mse_loss(model(series[:, :24]), series[:, 24:])
optimizer.zero_grad()
loss.backward()
optimizer.step()
