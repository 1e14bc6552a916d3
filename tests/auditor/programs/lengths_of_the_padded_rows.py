# rule: padding-leak
# says: the lengths `lengths` count the padding
# says: says 8, the padded width, for every row
# says: `lengths = (ids != 0).sum(1)`
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(30, 12, padding_idx=0), nn.Linear(12, 5)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 2, 24, batch_first=True), 1)

    def forward(self, ids, lengths):
        hidden = torch.arange(ids.size(1)) >= lengths.unsqueeze(1)
        states = self.encoder(self.table(ids), src_key_padding_mask=hidden)
        return self.out(states.masked_fill(hidden[..., None], 0).sum(1) / lengths[:, None])


torch.manual_seed(0)
rows = [torch.randint(1, 30, (n,)) for n in (8, 3, 5, 6)]
net = Reader()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = pad_sequence(rows, batch_first=True)
    lengths = torch.tensor([len(row) for row in (ids if BUG else rows)])  # culprit
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
