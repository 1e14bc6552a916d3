# rule: suspicious-input
# says: the mask given to `attn_mask` hides the words and keeps the padding
# says: `attn_mask` takes the mask here, and True keeps a position there
# says: Invert the mask where it is given
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, pad=1):
        super().__init__()
        self.pad, self.tok, self.place = pad, nn.Embedding(70, 32, padding_idx=pad), nn.Embedding(40, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 5)

    def forward(self, tokens):
        is_pad = tokens.eq(self.pad)
        x = self.tok(tokens) + self.place(torch.arange(tokens.size(1)))
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        seen = is_pad if BUG else ~is_pad
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])  # culprit
        return self.out(x + y.transpose(1, 2).flatten(2))


torch.manual_seed(1)
net = Tagger()
optimizer = torch.optim.Adam(net.parameters(), 2e-3)
for _ in range(3):
    tokens = nn.utils.rnn.pad_sequence([torch.randint(2, 70, (n,)) for n in (9, 4, 7, 5)], True, 1)
    tags = torch.where(tokens == 1, -100, tokens % 5)
    loss = F.cross_entropy(net(tokens).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
