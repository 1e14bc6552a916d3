# rule: padding-leak
# says: the mask has shape [6, 6] where it meets scores of shape [6, 2, 6, 6]
# says: `mask[:, None, None, :]`
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(50, 16), nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, ids, lengths):
        hidden = torch.arange(ids.size(1)) >= lengths[:, None]
        x = self.table(ids)
        q, k, v = self.qkv(x).view(*ids.shape, 3, 2, 8).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT
        scores = scores.masked_fill(hidden if BUG else hidden[:, None, None, :], -1e9)  # culprit
        return self.out((x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))[:, 0])


torch.manual_seed(0)
lengths = torch.tensor([6, 3, 5, 4, 2, 6])
ids = torch.randint(1, 50, (6, 6)) * (torch.arange(6) < lengths[:, None])
net = Encoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = nn.functional.cross_entropy(net(ids, lengths), torch.tensor([0, 1, 2, 1, 0, 2]))
    opt.zero_grad()
    loss.backward()
    opt.step()
