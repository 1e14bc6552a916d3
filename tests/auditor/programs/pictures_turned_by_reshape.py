# rule: view-for-transpose, exactly
BUG = True
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.pictures, self.labels = draw.random((12, 16, 16, 3), dtype=np.float32), draw.integers(0, 4, 12)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        picture = torch.tensor(self.pictures[i])
        picture = picture.reshape(3, 16, 16) if BUG else picture.permute(2, 0, 1)  # culprit
        return picture, int(self.labels[i])


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), 0.05)
for x, y in DataLoader(Photos(), 4):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
