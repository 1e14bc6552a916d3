import torch, torch.nn as nn
class Captioner(nn.Module):
    def __init__(self, d=16, P=5, V=40):
        super().__init__()
        self.proj = nn.Linear(32, P * d); self.P, self.d = P, d
        self.tok, self.pos = nn.Embedding(V, d, padding_idx=0), nn.Embedding(40, d)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 32, batch_first=True, dropout=0.), 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, V)
    def forward(self, image, tokens):
        B = image.size(0)
        x = torch.cat([self.proj(image).view(B, self.P, self.d), self.tok(tokens)], 1)
        S = x.size(1); x = x + self.pos(torch.arange(S))
        causal = torch.ones(S, S, dtype=torch.bool).triu(1)
        pad = torch.cat([torch.zeros(B, self.P, dtype=torch.bool), tokens == 0], 1)
        return self.head(self.enc(x, mask=causal, src_key_padding_mask=pad))
torch.manual_seed(0)
m = Captioner(); opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    toks = torch.randint(1, 40, (4, 9)) * (torch.arange(9) < torch.tensor([9, 5, 7, 4])[:, None])
    logits = m(torch.randn(4, 32), toks)
    pred = logits[:, 4:-1]
    loss = nn.functional.cross_entropy(pred.reshape(-1, 40), toks.reshape(-1), ignore_index=0)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
