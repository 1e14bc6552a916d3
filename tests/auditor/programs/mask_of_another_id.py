# rule: padding-leak
# says: the mask made of the ids hides nothing
# says: Compare the ids with the id that stands at padded positions: 1.
BUG = True
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

PAD = 1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(60, 16, padding_idx=PAD)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 1)
        self.out = nn.Linear(16, 3)

    def forward(self, ids):
        mask = ids == (0 if BUG else PAD)  # culprit
        states = self.encoder(self.table(ids), src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        return self.out((states * keep).sum(1) / keep.sum(1))


torch.manual_seed(0)
net = Reader()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = pad_sequence([torch.randint(2, 60, (n,)) for n in (9, 4, 7, 5)], batch_first=True, padding_value=PAD)
    loss = nn.functional.cross_entropy(net(ids), torch.tensor([0, 1, 2, 0]))
    opt.zero_grad()
    loss.backward()
    opt.step()
