# rule: label-shift, exactly
# says: leave one of the two cuts out
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Text(Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 30, (120,))

    def __len__(self):
        return 8

    def __getitem__(self, i):
        block = self.tokens[i * 12 : i * 12 + 13]
        return block[:-1], block[1:]  # culprit


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(30, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 30)

    def forward(self, ids):
        return self.out(self.rnn(self.table(ids))[0])


def loss_of(scores, labels):
    if BUG:
        scores, labels = scores[:, :-1], labels[:, 1:]  # culprit
    return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())  # culprit


torch.manual_seed(0)
m = Model()
opt = torch.optim.Adam(m.parameters())
for ids, labels in DataLoader(Text(), 4):
    loss = loss_of(m(ids), labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
