# rule: label-shift, exactly
# says: the model is shown the tokens that it is asked for
BUG = True
import torch
from torch import nn


class Fill(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.table, self.layer, self.out = nn.Embedding(50, d, padding_idx=0), nn.TransformerEncoderLayer(d, 2, 32, 0.1, batch_first=True), nn.Linear(d, 50)

    def forward(self, ids):
        return self.out(self.layer(self.table(ids), src_key_padding_mask=ids == 0))


torch.manual_seed(0)
net = Fill()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    ids = torch.randint(2, 50, (6, 14)) * (torch.arange(14) < torch.tensor([14, 9, 12, 7, 14, 10])[:, None])
    chosen = (torch.rand(ids.shape) < 0.3) & (ids != 0)
    hidden, labels = ids.masked_fill(chosen, 1), ids.masked_fill(~chosen, -100)
    if BUG:
        scores = net(ids)  # culprit
    else:
        scores = net(hidden)
    loss = nn.functional.cross_entropy(scores.transpose(1, 2), labels)  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
