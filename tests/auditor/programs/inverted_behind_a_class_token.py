# rule: padding-leak, exactly
# says: hides the words and keeps the padding
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.table, self.place, self.first = nn.Embedding(80, dim, padding_idx=0), nn.Embedding(16, dim), nn.Parameter(torch.randn(1, 1, dim))
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 4, 32, batch_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 3)

    def forward(self, batch):
        ids, mask = batch["input_ids"], batch["attention_mask"]
        h = torch.cat([self.first.expand(len(ids), -1, -1), self.table(ids) + self.place(torch.arange(ids.size(1)))], 1)
        mask = torch.cat([mask.new_ones(len(ids), 1), mask], 1).bool()
        h = self.encoder(h, src_key_padding_mask=mask if BUG else ~mask)  # culprit
        return self.out(h[:, 0])


torch.manual_seed(4)
m = Encoder()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = (torch.arange(11) < torch.tensor([10, 5, 7, 3])[:, None]).long()
    loss = nn.functional.cross_entropy(m({"input_ids": torch.randint(1, 80, (4, 11)) * mask, "attention_mask": mask}), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
