# rule: padding-leak
# says: as wide as that (all other rows have less padding then)
BUG = True
import torch
from torch import nn


class Classifier(nn.Module):
    """The mask is as wide as the ids, so neither can grow alone."""

    def __init__(self):
        super().__init__()
        self.table, self.rnn = nn.Embedding(60, 16, padding_idx=0), nn.GRU(16, 16, batch_first=True)
        self.score, self.out = nn.Linear(16, 1, bias=False), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        scores = self.score(states).squeeze(-1)
        known = scores if BUG else scores.masked_fill(ids == 0, -1e9)
        weights = (known + 0.0 * ids).softmax(1)  # culprit
        return self.out((weights[..., None] * states).sum(1))


torch.manual_seed(0)
lengths = torch.tensor([8, 3, 5, 7])
ids = torch.randint(1, 60, (4, 8)) * (torch.arange(8) < lengths[:, None])
net = Classifier()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.tensor([0, 1, 1, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
