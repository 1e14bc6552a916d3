# rule: causal-leak
# says: lets each position see 2 positions ahead
BUG = True
import torch
from torch import nn


def band(length, width):
    at = torch.arange(length)
    back = at[:, None] - at[None]
    return back.abs() < width if BUG else (back >= 0) & (back < width)  # culprit


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.joint, self.out = nn.Embedding(30, 16), nn.Linear(16, 48), nn.Linear(16, 30)

    def forward(self, x):
        h = self.table(x)
        q, k, v = self.joint(h).chunk(3, -1)
        return self.out(h + nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=band(x.size(1), 3)))


torch.manual_seed(0)
net = Model()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    text = torch.randint(0, 30, (6, 11))
    loss = nn.functional.cross_entropy(net(text[:, :-1]).transpose(1, 2), text[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
