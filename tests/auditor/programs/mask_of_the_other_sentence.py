# rule: padding-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(60, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, ids, mask):
        h = self.layer(self.table(ids), src_key_padding_mask=mask == 0)
        kept = mask.unsqueeze(-1).float()
        return (h * kept).sum(1) / kept.sum(1)


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.out = Encoder(), nn.Linear(32, 3)

    def forward(self, premise_ids, premise_mask, hypothesis_ids, hypothesis_mask):
        u = self.encoder(premise_ids, premise_mask)
        v = self.encoder(hypothesis_ids, premise_mask if BUG else hypothesis_mask)  # culprit
        return self.out(torch.cat([u, v], -1))


def ragged(lengths):
    mask = (torch.arange(8) < torch.tensor(lengths)[:, None]).long()
    return torch.randint(1, 60, (5, 8)) * mask, mask


torch.manual_seed(0)
model = Pairs()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = F.cross_entropy(model(*ragged([8, 6, 3, 7, 5]), *ragged([4, 8, 5, 2, 6])), torch.tensor([0, 1, 2, 1, 0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
