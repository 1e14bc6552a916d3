import torch
import torch.nn.functional as F
from torch import nn


class GIN(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp1 = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16))
        self.eps = nn.Parameter(torch.zeros(1))
        self.out = nn.Linear(16, 2)

    def forward(self, x, edge_index, batch):
        agg = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
        h = F.relu(self.mlp1((1 + self.eps) * x + agg))
        pooled = torch.zeros(int(batch.max()) + 1, 16).index_add_(0, batch, h)
        return self.out(pooled)


torch.manual_seed(0)
model = GIN()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(3):
    sizes = torch.randint(4, 9, (6,)).tolist()
    x = torch.randn(sum(sizes), 5)
    batch = torch.repeat_interleave(torch.arange(6), torch.tensor(sizes))
    starts = torch.tensor([0] + sizes[:-1]).cumsum(0)
    edges = torch.cat([torch.randint(0, n, (2, 3 * n)) + s for n, s in zip(sizes, starts)], 1)
    loss = F.cross_entropy(model(x, edges, batch), torch.randint(0, 2, (6,)))
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
