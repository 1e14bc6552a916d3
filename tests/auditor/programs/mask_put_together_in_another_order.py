# rule: padding-leak, exactly
# says: the mask hides positions 3 to 7, and the padding stands at positions 9 to 13
BUG = True
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.regions, self.words = nn.Linear(20, dim), nn.Embedding(50, dim)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 2, 32, batch_first=True), 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 4)

    def forward(self, regions, input_ids, attention_mask):
        parts = [self.regions(regions), self.words(input_ids)]
        masks = [torch.ones(regions.shape[:2], dtype=torch.long), attention_mask]
        mask = torch.cat(masks[::-1] if BUG else masks, 1)
        h = self.encoder(torch.cat(parts, 1), src_key_padding_mask=mask == 0)  # culprit
        return self.out(h[:, 0])


torch.manual_seed(0)
m = Fusion()
opt = torch.optim.Adam(m.parameters())
for _ in range(2):
    mask = (torch.arange(8) < torch.tensor([8, 3, 6, 5])[:, None]).long()
    loss = nn.functional.cross_entropy(m(torch.randn(4, 6, 20), torch.randint(1, 50, (4, 8)) * mask, mask), torch.randint(0, 4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
