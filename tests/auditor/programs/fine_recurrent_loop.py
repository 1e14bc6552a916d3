import torch
from torch import nn


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(3, 8), nn.Linear(8, 3)

    def forward(self, x):
        h, steps = x.new_zeros(x.shape[0], 8), []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            steps.append(self.out(h))
        return torch.stack(steps, 1)


torch.manual_seed(0)
model = Recurrent()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(4, 80, 3)
loss = (model(x[:, :-1]) - x[:, 1:]).pow(2).mean()
loss.backward()
optimizer.step()
