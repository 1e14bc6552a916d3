import torch
from torch import nn


class Fill(nn.Module):
    """Given the tokens themselves, it puts its own vector in the place of those that it is asked for."""

    def __init__(self, d=16):
        super().__init__()
        self.table, self.unknown = nn.Embedding(50, d), nn.Parameter(torch.randn(d))
        self.layer, self.out = nn.TransformerEncoderLayer(d, 2, 32, 0.1, batch_first=True), nn.Linear(d, 50)

    def forward(self, ids, chosen):
        return self.out(self.layer(torch.where(chosen.unsqueeze(-1), self.unknown, self.table(ids))))


class Squeeze(nn.Module):
    """An autoencoder: all tokens but the first of each row are asked for, and seen."""

    def __init__(self, d=8):
        super().__init__()
        self.table, self.down, self.up, self.out = nn.Embedding(50, d), nn.Linear(12 * d, 4), nn.Linear(4, 12 * d), nn.Linear(d, 50)

    def forward(self, ids):
        return self.out(self.up(torch.tanh(self.down(self.table(ids).flatten(1)))).view(len(ids), 12, -1))


torch.manual_seed(0)
ids = torch.randint(2, 50, (6, 12))
ids[:, 0] = 1
chosen = torch.rand(6, 12) < 0.3
for net, given, left in ((Fill(), (ids, chosen), ~chosen), (Squeeze(), (ids,), ids == 1)):
    opt = torch.optim.Adam(net.parameters())
    for _ in range(2):
        loss = nn.functional.cross_entropy(net(*given).flatten(0, 1), ids.masked_fill(left, -100).flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
