# rule: padding-leak, exactly
# says: more padded positions (axis 1) to `x`
BUG = True
import torch
from torch import nn


class Molecules(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 12), nn.Linear(12, 12), nn.Linear(12, 1)

    def forward(self, x, adj, mask):
        adj = adj / adj.sum(-1, keepdim=True).clamp(min=1)
        h = torch.relu(adj @ self.first(x))
        h = torch.relu(adj @ self.second(h))
        if BUG:
            return self.head(h.mean(1)).squeeze(-1)  # culprit
        return self.head((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).squeeze(-1)


torch.manual_seed(0)
sizes = [9, 4, 7, 5]
model = Molecules()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    x, adj, mask = torch.zeros(4, 9, 6), torch.zeros(4, 9, 9), torch.zeros(4, 9)
    for i, n in enumerate(sizes):
        x[i, :n], mask[i, :n] = torch.randn(n, 6), 1
        adj[i, :n, :n] = ((torch.rand(n, n) < 0.4) | torch.eye(n, dtype=torch.bool)).float()
    loss = nn.functional.mse_loss(model(x, adj, mask), torch.randn(4))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
