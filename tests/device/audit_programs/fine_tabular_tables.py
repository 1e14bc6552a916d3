# Each column has a table of its own size: ids of one column must not be tried in another's.
import torch
from torch import nn

SIZES = (4, 50, 900)


class Tabular(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 8) for n in SIZES)
        self.out = nn.Sequential(nn.Linear(8 * 3 + 5, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, categories, numbers):
        parts = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        return self.out(torch.cat([*parts, numbers], 1)).squeeze(1)


torch.manual_seed(0)
model = Tabular().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    categories = torch.stack([torch.randint(0, n, (16,)) for n in SIZES], 1).cuda()
    numbers, clicks = torch.randn(16, 5).cuda(), torch.randint(0, 2, (16,)).float().cuda()
    loss = nn.functional.binary_cross_entropy_with_logits(model(categories, numbers), clicks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
