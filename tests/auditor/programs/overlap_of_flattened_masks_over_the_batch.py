# rule: softmax-axis, exactly
# says: Sum over all axes but the first: `dim=-1`.
BUG = True
import torch
from torch import nn


def jaccard(scores, mask):
    p, mask = scores.sigmoid().flatten(1), mask.flatten(1)
    if BUG:
        both = (p * mask).sum(dim=0)  # culprit
        either = p.sum(dim=0) + mask.sum(dim=0) - both  # culprit
    else:
        both = (p * mask).sum(dim=1)
        either = p.sum(dim=1) + mask.sum(dim=1) - both
    share = (both + 1) / (either + 1)  # culprit
    return (1 - share).mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    mask = (torch.rand(5, 1, 8, 8) > 0.6).float()
    loss = jaccard(net(mask + 0.3 * torch.randn_like(mask)), mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
