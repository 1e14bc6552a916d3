"""Rows of at most two positions, one label for each row: as many labels as next tokens, and all alike where the rows are short."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.gru, self.head = nn.Linear(3, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x, lengths):
        states, _ = self.gru(self.project(x))
        return self.head(states[torch.arange(len(x)), lengths - 1])


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.Adam(model.parameters())
lengths, labels = torch.tensor([2, 1, 1, 2, 1, 2]), torch.tensor([1, 0, 0, 1, 0, 0])
x = torch.randn(6, 2, 3) * (torch.arange(2) < lengths[:, None])[..., None]
loss = F.cross_entropy(model(x, lengths), labels)
loss.backward()
optimizer.step()
