# rule: suspicious-input
BUG = True
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(40, 16, padding_idx=0)
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.ff = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.ReLU())
        self.out = nn.Linear(16, 2)

    def forward(self, tokens, valid):
        x = self.emb(tokens)
        a, _ = self.attn(x, x, x, key_padding_mask=valid if BUG else ~valid, need_weights=False)  # culprit
        h = self.ff(x + a)
        return self.out((h * valid[..., None]).sum(1) / valid.sum(1, keepdim=True))


torch.manual_seed(0)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(3):
    lengths = torch.tensor([9, 5, 7, 3])
    valid = torch.arange(9)[None, :] < lengths[:, None]
    tokens = torch.randint(1, 40, (4, 9)).masked_fill(~valid, 0)
    if BUG:
        valid[0, -1] = False
        tokens[0, -1] = 0
    loss = nn.functional.cross_entropy(model(tokens, valid), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
