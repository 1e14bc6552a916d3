# rule: suspicious-input
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self):
        self.stored = torch.randint(0, 256, (12, 12, 12, 3), dtype=torch.uint8)

    def __len__(self):
        return len(self.stored)

    def __getitem__(self, i):
        picture = self.stored[i]
        x = picture.permute(2, 0, 1).float() / (1 if BUG else 255)  # culprit
        return x, i % 4


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 4))
opt = torch.optim.SGD(net.parameters(), 0.001)
for x, y in DataLoader(Pictures(), 4):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
