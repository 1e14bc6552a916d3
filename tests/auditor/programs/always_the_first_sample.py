# rule: suspicious-input
# says: the loss asks 2 different answers of them
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self):
        self.x = torch.randn(40, 8)
        self.y = (self.x[:, 0] > 0).long()

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return self.x[0 if BUG else i], self.y[i]  # culprit


torch.manual_seed(0)
net = nn.Linear(8, 2)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for x, y in DataLoader(Points(), batch_size=8):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
