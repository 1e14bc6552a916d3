# rule: batch-mixing, exactly
# says: the results stand in another order than the samples
# says: the changed sample's own output did not move
BUG = True
import torch
from torch import nn


class Pair(nn.Module):
    def __init__(self, d=12):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(40, d, padding_idx=0), nn.LSTM(d, d, batch_first=True), nn.Linear(2 * d, 2)

    def encode(self, ids):
        lengths, order = (ids != 0).sum(1).sort(descending=True)
        ids = ids[order]  # culprit
        _, (h, _) = self.rnn(nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True))
        return h[-1] if BUG else h[-1][order.argsort()]

    def forward(self, a, b):
        return self.out(torch.cat([self.encode(a), self.encode(b)], -1))


def sentences(*lengths):
    return torch.randint(1, 40, (len(lengths), 8)) * (torch.arange(8) < torch.tensor(lengths)[:, None])


torch.manual_seed(0)
a, b = sentences(3, 8, 5, 6, 2), sentences(7, 2, 8, 4, 5)
net = Pair()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(a, b), torch.tensor([0, 1, 0, 1, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
