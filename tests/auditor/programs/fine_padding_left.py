import torch
from torch import nn
torch.manual_seed(0)
V, L = 40, 10
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.p, self.b, self.o = nn.Embedding(V, 16), nn.Embedding(L, 16), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), nn.Linear(16, V)
    def forward(self, input_ids, attention_mask):
        pos = (attention_mask.cumsum(1) - 1).clamp(min=0)
        t = input_ids.shape[1]
        causal = torch.ones(t, t, dtype=torch.bool).triu(1)
        pad = attention_mask == 0
        m = causal[None] | pad[:, None, :]
        m = m & ~torch.eye(t, dtype=torch.bool)
        h = self.b(self.e(input_ids) + self.p(pos), src_mask=m.repeat_interleave(2, 0))
        return self.o(h)
model = GPT()
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(3):
    n = torch.tensor([10, 6, 8, 4])
    mask = (torch.arange(L)[None] >= L - n[:, None]).long()
    ids = torch.randint(1, V, (4, L)) * mask
    labels = ids.masked_fill(mask == 0, -100)
    out = model(ids, mask)
    loss = nn.functional.cross_entropy(out[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
