# rule: silent-broadcast, exactly
# says: the [8, 1] gets its axis of size 1 by `tensor`
# says: the [8] loses an axis of size 1 by `flatten`
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Houses(Dataset):
    def __init__(self):
        self.rooms = torch.randn(16, 5, generator=torch.Generator().manual_seed(1)).tolist()

    def __len__(self):
        return len(self.rooms)

    def __getitem__(self, i):
        if BUG:
            price = torch.tensor([sum(self.rooms[i])])  # culprit
        else:
            price = torch.tensor(sum(self.rooms[i]))
        return torch.tensor(self.rooms[i]), price


def error(predicted, wanted):
    difference = predicted - wanted  # culprit
    return difference.pow(2).mean()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Linear(16, 1), nn.Flatten(0))
optimizer = torch.optim.AdamW(net.parameters())
for rooms, price in DataLoader(Houses(), batch_size=8):
    loss = error(net(rooms), price)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
