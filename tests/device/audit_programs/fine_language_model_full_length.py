# The longest sequence fills the table of positions: more padding must not be tried on the device.
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

L, V = 24, 100


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, 32), nn.Embedding(L, 32)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True, dropout=0.1) for _ in range(2))
        self.norm = nn.LayerNorm(32)

    def forward(self, input_ids, attention_mask):
        where = torch.arange(input_ids.shape[1], device=input_ids.device)
        h = self.tokens(input_ids) + self.positions(where)
        causal = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1], device=input_ids.device)
        hidden = torch.zeros_like(attention_mask, dtype=h.dtype).masked_fill(attention_mask == 0, float("-inf"))
        for block in self.blocks:
            h = checkpoint(block, h, causal.to(h.dtype), hidden, use_reentrant=False)
        return self.norm(h) @ self.tokens.weight.T


torch.manual_seed(0)
model = Decoder().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    lengths = torch.tensor([L, 10, 17, L])
    mask = (torch.arange(L)[None] < lengths[:, None]).long().cuda()
    ids = torch.randint(1, V, (4, L)).cuda() * mask
    labels = ids.masked_fill(mask == 0, -100)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        scores = model(ids, mask)
    loss = F.cross_entropy(scores[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(torch.isfinite(loss).item())
