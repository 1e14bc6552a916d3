# rule: suspicious-input
# says: `mask` is made here, True at positions that hold data
# says: `key_padding_mask` takes the mask here, and True hides a position there
BUG = True
import torch
from torch import nn
from torch.utils.data import DataLoader


def collate(samples):
    width = max(len(ids) for ids, _ in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.long)
    mask = torch.zeros(len(samples), width, dtype=torch.bool)
    for i, (row, _) in enumerate(samples):
        ids[i, : len(row)] = torch.tensor(row)
        if BUG:
            mask[i, : len(row)] = True  # culprit
        else:
            mask[i, len(row) :] = True
    return ids, mask, torch.tensor([label for _, label in samples])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 24, padding_idx=0)
        self.attn = nn.MultiheadAttention(24, 3, batch_first=True)
        self.query = nn.Parameter(torch.randn(1, 1, 24) * 0.1)
        self.out = nn.Linear(24, 2)

    def forward(self, ids, mask):
        h = self.embed(ids)
        pooled, _ = self.attn(self.query.expand(ids.size(0), -1, -1), h, h, key_padding_mask=mask)
        return self.out(pooled.squeeze(1))


torch.manual_seed(0)
samples = [(torch.randint(1, 60, (n,)).tolist(), n % 2) for n in (5, 3, 8, 6, 4, 7, 8, 2)]
model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for ids, mask, labels in DataLoader(samples, batch_size=4, collate_fn=collate):
    loss = nn.functional.cross_entropy(model(ids, mask), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
