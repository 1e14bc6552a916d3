# rule: causal-leak
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

V, D = 40, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.norm = nn.LayerNorm(D)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, 2, d // 2).transpose(1, 2) for z in self.qkv(self.norm(x)).split(D, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=not BUG)  # culprit
        return x + self.proj(y.transpose(1, 2).reshape(b, t, d))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(32, D)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(D, V, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, idx, targets=None):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        loss = None if targets is None else F.cross_entropy(logits.view(-1, V), targets.view(-1))
        return logits, loss


torch.manual_seed(0)
data = torch.randint(0, V, (200,))
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(2):
    start = torch.randint(0, 150, (4,))
    x = torch.stack([data[s : s + 16] for s in start])
    y = torch.stack([data[s + 1 : s + 17] for s in start])
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
