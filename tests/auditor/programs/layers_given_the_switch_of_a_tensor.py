# rule: nothing-frozen, exactly
# says: a module has none
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        return self.fc(self.features(x))


net = Classifier()
for layer in net.features if BUG else []:
    layer.requires_grad = False  # culprit
for p in [] if BUG else net.features.parameters():
    p.requires_grad = False
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(8, 1, 10, 10), torch.randint(0, 3, (8,))
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
