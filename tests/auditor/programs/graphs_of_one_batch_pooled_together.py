# rule: batch-mixing, exactly
import torch
from torch import nn

BUG = True


class Graphs(nn.Module):
    """A table of edges for each sample: no graph between the samples."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(5, 16), nn.Linear(16, 2)

    def forward(self, nodes, adj):
        h = torch.relu(self.first(adj @ nodes / adj.sum(-1, keepdim=True).clamp(min=1)))
        return self.out((h - h.mean(0 if BUG else 1, keepdim=True)).abs().sum(1))  # culprit


torch.manual_seed(0)
model = Graphs()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    adj = (torch.rand(7, 9, 9) > 0.6).float()
    loss = nn.functional.cross_entropy(model(torch.randn(7, 9, 5), adj), torch.randint(0, 2, (7,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
