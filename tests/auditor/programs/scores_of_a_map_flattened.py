# rule: view-for-transpose, exactly
# says: [6, 5, 20] is counted off anew as [120, 5]
import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv1d(16, 5, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(6, 3, 20), torch.randint(0, 5, (6, 20))
    scores = net(x)
    if BUG:
        rows = scores.reshape(-1, 5)  # culprit
    else:
        rows = scores.transpose(1, 2).reshape(-1, 5)
    loss = F.cross_entropy(rows, y.reshape(-1))
    hits = (rows.argmax(1) == y.reshape(-1)).float().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
