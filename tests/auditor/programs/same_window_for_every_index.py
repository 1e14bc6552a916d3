# rule: suspicious-input
# says: they were cut out of one tensor of 90 rows
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, series, size):
        self.series, self.size, self.start = series, size, 0

    def __len__(self):
        return len(self.series) - self.size

    def __getitem__(self, i):
        start = self.start if BUG else i
        return self.series[start : start + self.size], self.series[start + self.size]  # culprit


torch.manual_seed(0)
net = nn.Linear(10, 1)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
for x, y in DataLoader(Windows(torch.randn(90), 10), batch_size=16):
    loss = nn.functional.mse_loss(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
