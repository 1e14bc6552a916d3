import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
def rope(x, base=10000.0):
    b, h, t, d = x.shape
    f = base ** (-torch.arange(0, d, 2) / d)
    a = torch.arange(t)[:, None] * f
    cos, sin = a.cos(), a.sin()
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], -1).flatten(-2)
class Block(nn.Module):
    def __init__(self, d=16, h=4, kv=2):
        super().__init__()
        self.h, self.kv, self.dh = h, kv, d // h
        self.wq, self.wk, self.wv, self.wo = nn.Linear(d, d, False), nn.Linear(d, kv * self.dh, False), nn.Linear(d, kv * self.dh, False), nn.Linear(d, d, False)
        self.g, self.u, self.d = nn.Linear(d, 32, False), nn.Linear(d, 32, False), nn.Linear(32, d, False)
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
    def forward(self, x):
        b, t, _ = x.shape
        y = self.n1(x)
        q = rope(self.wq(y).view(b, t, self.h, self.dh).transpose(1, 2))
        k = rope(self.wk(y).view(b, t, self.kv, self.dh).transpose(1, 2)).repeat_interleave(self.h // self.kv, 1)
        v = self.wv(y).view(b, t, self.kv, self.dh).transpose(1, 2).repeat_interleave(self.h // self.kv, 1)
        x = x + self.wo(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1))
        y = self.n2(x)
        return x + self.d(F.silu(self.g(y)) * self.u(y))
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.blocks, self.norm = nn.Embedding(50, 16), nn.ModuleList(Block() for _ in range(2)), nn.RMSNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.tok.weight
    def forward(self, ids):
        h = self.tok(ids)
        for b in self.blocks:
            h = b(h)
        return self.head(self.norm(h))
lm = LM()
opt = torch.optim.AdamW(lm.parameters(), 1e-3, betas=(0.9, 0.95), weight_decay=0.1)
for s in range(4):
    for g in opt.param_groups:
        g["lr"] = 1e-3 * min(1, s / 2)
    ids = torch.randint(0, 50, (4, 17))
    loss = F.cross_entropy(lm(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)
print(loss.item())
