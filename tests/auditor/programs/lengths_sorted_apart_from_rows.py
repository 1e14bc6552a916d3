# rule: suspicious-input
# says: the same numbers in another order
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(rows):
    ids = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=True)
    lengths = sorted((len(row) for row, _ in rows), reverse=True) if BUG else [len(row) for row, _ in rows]  # culprit
    return ids, torch.tensor(lengths), torch.tensor([label for _, label in rows])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=BUG)
        return self.out(self.rnn(packed)[1][-1])


torch.manual_seed(0)
data = [(torch.randint(1, 60, (n,)), n % 3) for n in (9, 4, 7, 5, 8, 12, 6, 10)]
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for ids, lengths, labels in DataLoader(data, 4, collate_fn=collate):
    loss = nn.functional.cross_entropy(net(ids, lengths), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
