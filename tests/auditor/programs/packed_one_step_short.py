# rule: padding-leak, exactly
# says: one position too few is counted here
BUG = True
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, ids):
        words = (ids != 0).sum(1)
        if BUG:
            words = words - 1  # culprit
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), words, batch_first=True, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][-1])


torch.manual_seed(0)
ids = nn.utils.rnn.pad_sequence([torch.randint(1, 60, (n,)) for n in (5, 9, 4, 7, 8)], batch_first=True)
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids), torch.tensor([0, 1, 2, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
