"""Lengths sorted for a model that is told the order and sorts the rows itself."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids, lengths, order):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids[order]), lengths, batch_first=True)
        return self.out(self.rnn(packed)[1][-1][order.argsort()])


torch.manual_seed(0)
counts = torch.tensor([5, 9, 4, 7, 8])
ids = torch.randint(1, 60, (5, 9)) * (torch.arange(9) < counts[:, None])
lengths, order = counts.sort(descending=True)
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths, order), torch.tensor([0, 1, 2, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
