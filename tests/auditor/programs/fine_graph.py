import torch
from torch import nn


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x, edge_index):
        adj = torch.eye(x.shape[0])
        adj[edge_index[0], edge_index[1]] = 1
        adj = adj / adj.sum(1, keepdim=True)
        return self.two(adj @ self.one(adj @ x).relu())


torch.manual_seed(0)
model = GCN()
optimizer = torch.optim.Adam(model.parameters())
edges = torch.randint(0, 9, (2, 20))
loss = nn.functional.cross_entropy(model(torch.randn(9, 5), edges), torch.arange(9) % 3)
loss.backward()
optimizer.step()
