import torch
from torch import nn
torch.manual_seed(0)


class Both(nn.Module):
    """Attention within each row of a table, then among the rows of the batch (tabular models do both)."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.columns = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.rows = nn.TransformerEncoderLayer(40, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(40, 2)

    def forward(self, x):
        h = self.columns(self.embed(x.unsqueeze(-1)))
        rows, columns, width = h.shape
        return self.head(self.rows(h.reshape(1, rows, columns * width))[0])


class AmongTheBatchWhileTraining(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
        self.among = nn.TransformerEncoderLayer(8, 2, 16, 0.0)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.body(x)
        if self.training:
            h = self.among(h.unsqueeze(1)).squeeze(1)
        return self.head(h)


for model in (Both(), AmongTheBatchWhileTraining()):
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(3):
        x = torch.randn(12, 5)
        loss = nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())
