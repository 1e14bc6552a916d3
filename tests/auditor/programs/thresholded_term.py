# rule: gradient-cut, exactly
# says: is a term of the loss
import torch
from torch import nn
import torch.nn.functional as F

BUG = True
torch.manual_seed(0)
net = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def overlap(scores, mask):
    chance = scores.sigmoid()
    chosen = (chance > 0.5).float() if BUG else chance  # culprit
    return 1 - (2 * (chosen * mask).sum((1, 2, 3)) / (chosen.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


for _ in range(3):
    image = torch.randn(4, 1, 8, 8)
    mask = (image > 0.3).float()
    scores = net(image)
    loss = F.binary_cross_entropy_with_logits(scores, mask) + 0.5 * overlap(scores, mask)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
