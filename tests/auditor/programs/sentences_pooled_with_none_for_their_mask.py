# rule: padding-leak, exactly
# says: `keep` is not given here
BUG = True
import torch
from torch import nn

PAD = 0


class AttnPool(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.p, self.u = nn.Linear(d, d), nn.Parameter(torch.randn(d) * 0.1)

    def forward(self, h, keep):
        a = torch.tanh(self.p(h)) @ self.u
        if keep is not None:
            a = a.masked_fill(~keep, -1e9)
        return (a.softmax(-1).unsqueeze(-1) * h).sum(-2)  # culprit


class HAN(nn.Module):
    def __init__(self, vocab=90, d=20, classes=4):
        super().__init__()
        self.e = nn.Embedding(vocab, d, padding_idx=PAD)
        self.w, self.s = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
        self.wp, self.sp = AttnPool(d), AttnPool(d)
        self.o = nn.Linear(d, classes)

    def forward(self, docs):                     # (B, S, W)
        b, s, w = docs.shape
        words = docs.reshape(b * s, w)
        keep = words != PAD
        keep[:, 0] = True
        h, _ = self.w(self.e(words))
        sent = self.wp(h, keep).view(b, s, -1)
        real = (docs != PAD).any(-1)
        h, _ = self.s(sent)
        if BUG:
            return self.o(self.sp(h, None))  # culprit
        return self.o(self.sp(h, real))


def doc():
    out = torch.zeros(6, 8, dtype=torch.long)
    for i in range(int(torch.randint(2, 7, (1,)))):
        n = int(torch.randint(2, 9, (1,)))
        out[i, :n] = torch.randint(1, 90, (n,))
    return out


torch.manual_seed(1)
net = HAN()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    x = torch.stack([doc() for _ in range(7)])
    loss = nn.functional.cross_entropy(net(x), torch.randint(0, 4, (7,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3))
