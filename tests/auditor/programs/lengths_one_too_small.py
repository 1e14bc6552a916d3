# rule: padding-leak
# says: every row of `series` holds data at one position more than `lengths` says
# says: the model never sees how a row ends
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(rows):
    series = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
    counts = [len(row) - 1 if BUG else len(row) for row, _ in rows]  # culprit
    return series, torch.tensor(counts), torch.tensor([label for _, label in rows])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, series, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(series, lengths, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][-1])


torch.manual_seed(0)
data = [(torch.randn(n, 4), n % 3) for n in (9, 4, 7, 5, 12, 8, 6, 10)]
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for series, lengths, labels in DataLoader(data, 4, collate_fn=collate):
    loss = nn.functional.cross_entropy(net(series, lengths), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
