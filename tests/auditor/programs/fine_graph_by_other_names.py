"""As many nodes as classes and features, each with a label, linked by a table that the model holds, or by a sparse one that it is given."""

import torch
import torch.nn.functional as F
from torch import nn

N = 6


class Net(nn.Module):
    def __init__(self, links):
        super().__init__()
        self.register_buffer("links", links)
        self.one, self.two = nn.Linear(N, 8), nn.Linear(8, N)

    def forward(self, x):
        return self.two(self.links @ F.relu(self.one(self.links @ x)))


class Sparse(Net):
    def forward(self, x, matrix):
        return self.two(torch.spmm(matrix, F.relu(self.one(torch.spmm(matrix, x)))))


torch.manual_seed(0)
table = ((torch.rand(N, N) < 0.4).float() + torch.eye(N)).clamp(max=1)
table = table / table.sum(1, keepdim=True)
held, given = Net(table), Sparse(None)
features, labels = torch.randn(N, N), torch.randint(0, N, (N,))
for model, inputs in ((held, (features,)), (given, (features, table.to_sparse()))):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    loss = F.cross_entropy(model(*inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
