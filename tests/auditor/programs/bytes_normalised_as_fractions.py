# rule: suspicious-input
# says: divided by 0.229
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEAN, SPREAD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


class Photos(Dataset):
    def __init__(self):
        self.pixels, self.kinds = torch.randint(0, 256, (40, 3, 12, 12), dtype=torch.uint8), torch.randint(0, 2, (40,))

    def __len__(self):
        return 40

    def __getitem__(self, i):
        picture = self.pixels[i].float() if BUG else self.pixels[i].float() / 255
        return (picture - MEAN) / SPREAD, self.kinds[i]  # culprit


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for x, y in DataLoader(Photos(), batch_size=8):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
