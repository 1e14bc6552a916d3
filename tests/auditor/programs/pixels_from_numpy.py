# rule: suspicious-input
BUG = True
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCALE = 1 if BUG else 255


class Digits(Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.pictures, self.labels = draw.integers(0, 256, (12, 12, 12), dtype=np.uint8), draw.integers(0, 4, 12)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return torch.from_numpy(self.pictures[i]).unsqueeze(0) / SCALE, int(self.labels[i])  # culprit


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 4))
opt = torch.optim.SGD(net.parameters(), 0.001)
for x, y in DataLoader(Digits(), 4):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
