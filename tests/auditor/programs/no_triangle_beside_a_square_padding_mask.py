# rule: causal-leak, exactly
BUG = True
import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 40)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)

    def forward(self, ids):
        later = None if BUG else torch.ones(ids.size(1), ids.size(1), dtype=torch.bool).triu(1)
        return self.out(self.layer(self.table(ids), src_mask=later, src_key_padding_mask=ids == 0))  # culprit


torch.manual_seed(0)
net = LanguageModel()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):  # eight samples of eight positions
    ids = torch.randint(1, 40, (8, 9)) * (torch.arange(9) < torch.tensor([9, 4, 6, 9, 5, 7, 8, 3])[:, None])
    loss = nn.functional.cross_entropy(net(ids[:, :-1]).transpose(1, 2), ids[:, 1:], ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
