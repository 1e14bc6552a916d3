# rule: suspicious-input, exactly
# says: Leave out what exchanges True and False on the way: `~m`
# says: which is right for its other uses
BUG = True
import torch
from torch import nn
import torch.nn.functional as F


def sequence_mask(lengths, maxlen):
    row = torch.arange(maxlen, device=lengths.device)
    valid = row.unsqueeze(0) < lengths.unsqueeze(1)
    return valid


class MHA(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.wq, self.wkv, self.wo = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def forward(self, x, ctx, ctx_mask):
        q = self.wq(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (self.h, -1)).transpose(1, 2) for t in self.wkv(ctx).chunk(2, -1))
        m = ctx_mask[:, None, None, :]
        if BUG:
            m = ~m  # culprit
        return self.wo(F.scaled_dot_product_attention(q, k, v, attn_mask=m).transpose(1, 2).flatten(2))  # culprit


class Model(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp, self.att, self.ln, self.out = nn.Linear(6, d), MHA(d, 3), nn.LayerNorm(d), nn.Linear(d, 2)

    def forward(self, frames, frame_lens):
        mask = sequence_mask(frame_lens, frames.shape[1])
        h = self.inp(frames)
        h = self.ln(h + self.att(h, h, mask))
        return self.out((h * mask.unsqueeze(-1)).sum(1) / frame_lens.unsqueeze(1))


torch.manual_seed(0)
net = Model()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    n = torch.tensor([12, 7, 9, 5])
    x = torch.randn(4, 13, 6) * (torch.arange(13)[None] < n[:, None])[..., None]
    loss = F.cross_entropy(net(x, n), torch.tensor([0, 1, 0, 1]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 4))
