# rule: padding-leak
# says: the mask hides positions 3 to 6, and the padding stands at positions 9 to 12
BUG = True
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.regions, self.first = nn.Embedding(60, 16, padding_idx=0), nn.Linear(20, 16), nn.Parameter(torch.randn(1, 1, 16))
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 8)

    def forward(self, regions, words, word_mask):
        x = torch.cat([self.first.expand(len(words), -1, -1), self.regions(regions), self.words(words)], 1)
        shown = torch.ones(len(words), 6, dtype=torch.bool)
        keep = torch.cat([word_mask, shown] if BUG else [shown, word_mask], 1)  # culprit
        return self.out(self.enc(x, src_key_padding_mask=~keep)[:, 0])


torch.manual_seed(0)
model = Fusion()
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 6])[:, None]
    loss = nn.functional.cross_entropy(model(torch.randn(4, 5, 20), torch.randint(1, 60, (4, 7)) * mask, mask), torch.randint(0, 8, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
