# rule: softmax-axis
# says: each pixel gets an overlap over the batch
BUG = True
import torch
from torch import nn
from torch.nn import functional as F


def dice(scores, mask, smooth=1.0):
    p = scores.sigmoid()
    axes = 0 if BUG else (1, 2, 3)
    both = (p * mask).sum(axes)  # culprit
    return 1 - ((2 * both + smooth) / (p.sum(axes) + mask.sum(axes) + smooth)).mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(2):
    mask = (torch.rand(5, 1, 8, 8) > 0.6).float()
    scores = net(mask + 0.3 * torch.randn_like(mask))
    loss = F.binary_cross_entropy_with_logits(scores, mask) + dice(scores, mask)
    opt.zero_grad()
    loss.backward()
    opt.step()
