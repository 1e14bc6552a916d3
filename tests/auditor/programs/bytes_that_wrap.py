# rule: suspicious-input, exactly
# says: results lie outside of 0 to 255
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BUG = True


class Pictures(Dataset):
    def __init__(self):
        self.x = torch.randint(0, 256, (32, 3, 9, 9), dtype=torch.uint8)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        picture = self.x[i] if BUG else self.x[i].float()
        return (picture - 128) / 128, i % 4  # culprit


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for x, y in DataLoader(Pictures(), batch_size=8):
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
