# rule: padding-leak
# says: alone, without its padding, gives another `output` than alone with it
# says: and the padding stands at positions 5 to 7
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 3)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, ids, lengths):
        at = torch.arange(ids.size(1))
        pad = at > lengths[:, None] if BUG else at >= lengths[:, None]  # culprit
        h = self.layers(self.table(ids), src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).float()
        return self.out((h * keep).sum(1) / keep.sum(1))


torch.manual_seed(0)
lengths = torch.tensor([8, 5, 3, 6])
ids = torch.randint(1, 40, (4, 8)) * (torch.arange(8) < lengths[:, None])
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.tensor([0, 1, 2, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
