import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.given, self.kept = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x, h):
        h = torch.tanh(self.given(x) + self.kept(h))
        return h, h


torch.manual_seed(0)
cell, head = Cell(), nn.Linear(8, 2)
opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=1e-2)
x, y = torch.randn(5, 4, 6), torch.tensor([0, 1, 0, 1, 1])
for _ in range(2):
    h = torch.zeros(5, 8)
    for t in range(4):
        out, h = cell(x[:, t], h)
    loss = nn.functional.cross_entropy(head(out), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
