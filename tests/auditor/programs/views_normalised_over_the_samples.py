# rule: softmax-axis, exactly
# says: `normalize` runs over the samples, not over each one's features
# says: Normalise along the features: `dim=-1`
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


def nt_xent(one, two, temperature=0.2):
    z = torch.cat([one, two])
    z = F.normalize(z, dim=0) if BUG else F.normalize(z, dim=1)  # culprit
    scores = z @ z.T / temperature  # culprit
    n = one.size(0)
    scores = scores.masked_fill(torch.eye(2 * n, dtype=torch.bool), -1e9)
    return F.cross_entropy(scores, torch.cat([torch.arange(n) + n, torch.arange(n)]))


torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
for _ in range(2):
    x = torch.randn(16, 16)
    loss = nt_xent(encoder(x + 0.1 * torch.randn_like(x)), encoder(x + 0.1 * torch.randn_like(x)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
