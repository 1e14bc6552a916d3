# rule: eval-mode-undone
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3))
opt = torch.optim.SGD(model.parameters(), 0.01)
if not BUG:
    model.train()
for m in model.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.eval()
for _ in range(3):
    if BUG:
        model.train()  # culprit
    loss = F.cross_entropy(model(torch.randn(8, 1, 10, 10)), torch.randint(0, 3, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
