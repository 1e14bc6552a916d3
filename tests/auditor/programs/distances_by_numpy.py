# rule: gradient-cut, exactly
# says: is a term of the loss
import numpy as np
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Linear(6, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def spread(points):
    if BUG:
        found = points.detach().numpy()  # culprit
        apart = np.abs(found[:, None] - found).sum(-1)
        return torch.from_numpy(apart).double().mean().float()
    return (points[:, None] - points).abs().sum(-1).mean()


for _ in range(3):
    x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
    scores = net(x)
    far = spread(scores)
    loss = nn.functional.cross_entropy(scores, y) + 0.1 * far  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
