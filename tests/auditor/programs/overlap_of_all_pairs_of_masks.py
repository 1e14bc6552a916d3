# rule: silent-broadcast, exactly
# says: [6, 1, 8, 8] and [6, 8, 8] broadcast to [6, 6, 8, 8]
import torch
from torch import nn

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
opt = torch.optim.Adam(net.parameters())
images = torch.rand(6, 1, 8, 8)
masks = (images.squeeze(1) > 0.5).float()
for _ in range(2):
    loss = nn.functional.binary_cross_entropy_with_logits(net(images).squeeze(1), masks)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        found = (net(images) > 0).float()
        found = found if BUG else found.squeeze(1)
        shared = (found * masks).sum()  # culprit
        either = ((found + masks) > 0).float().sum()  # culprit
