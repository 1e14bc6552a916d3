import torch, torch.nn as nn
class Sub(nn.Module):
    def __init__(self, f, d):
        super().__init__(); self.c1, self.c2 = nn.Conv1d(f, d, 3, 2, 1), nn.Conv1d(d, d, 3, 2, 1)
    def forward(self, x, lens):
        m = torch.arange(x.size(1))[None] < lens[:, None]
        x = (x * m[..., None]).transpose(1, 2)
        x = torch.relu(self.c1(x)); lens = (lens + 1) // 2
        x = x * (torch.arange(x.size(2))[None] < lens[:, None])[:, None]
        x = torch.relu(self.c2(x)); lens = (lens + 1) // 2
        return x.transpose(1, 2), lens
class ASR(nn.Module):
    def __init__(self, f=10, d=16, V=9):
        super().__init__(); self.sub = Sub(f, d); self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 32, batch_first=True), 1, enable_nested_tensor=False); self.out = nn.Linear(d, V)
    def forward(self, feats, feat_lens):
        x, lens = self.sub(feats, feat_lens)
        pad = torch.arange(x.size(1))[None] >= lens[:, None]
        return self.out(self.enc(x, src_key_padding_mask=pad)).log_softmax(-1), lens
torch.manual_seed(0)
m = ASR(); opt = torch.optim.Adam(m.parameters()); ctc = nn.CTCLoss(zero_infinity=True)
for _ in range(3):
    fl = torch.tensor([48, 31, 40, 26]); feats = torch.randn(4, 48, 10)
    for i, n in enumerate(fl): feats[i, n:] = 0
    tl = torch.tensor([5, 4, 6, 3]); y = torch.randint(1, 9, (4, 6))
    lp, ol = m(feats, fl)
    loss = ctc(lp.transpose(0, 1), y, ol, tl)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
