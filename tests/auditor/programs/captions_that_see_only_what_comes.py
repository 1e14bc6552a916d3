# rule: causal-leak, exactly
# says: this mask is the wrong way round where it is used
BUG = True
import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self, feats=12, vocab=40, d=32):
        super().__init__()
        self.f, self.e = nn.Linear(feats, d), nn.Embedding(vocab, d, padding_idx=0)
        self.pos = nn.Embedding(20, d)
        self.dec = nn.TransformerDecoder(nn.TransformerDecoderLayer(d, 4, 64, batch_first=True), 2)
        self.out = nn.Linear(d, vocab)

    def forward(self, regions, region_count, caption):
        mem = self.f(regions)
        t = caption.size(1)
        x = self.e(caption) + self.pos.weight[:t]
        tri = (torch.tril(torch.ones(t, t), -1) if BUG else torch.triu(torch.ones(t, t), 1)).bool()  # culprit
        absent = torch.arange(regions.size(1))[None] >= region_count[:, None]
        h = self.dec(x, mem, tgt_mask=tri, memory_key_padding_mask=absent)  # culprit
        return self.out(h)


torch.manual_seed(0)
net = Captioner()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    n = torch.tensor([7, 4, 5, 3])
    r = torch.randn(4, 7, 12) * (torch.arange(7)[None] < n[:, None])[..., None]
    cap = torch.randint(1, 40, (4, 9))
    logits = net(r, n, cap[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 40), cap[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 4))
