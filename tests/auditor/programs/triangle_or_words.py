# rule: causal-leak
# says: a mask that hides what lies ahead is combined here with one that shows it
BUG = True
import torch
import torch.nn.functional as F
from torch import nn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.out = nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 48), nn.Linear(16, 40)

    def forward(self, ids, keep):
        size = ids.size(1)
        ahead = torch.ones(size, size, dtype=torch.bool).tril()
        allowed = ahead | keep[:, None, :] if BUG else ahead & keep[:, None, :]  # culprit
        allowed = allowed | torch.eye(size, dtype=torch.bool)
        q, k, v = self.qkv(self.table(ids)).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=allowed))


torch.manual_seed(0)
keep = torch.arange(9) < torch.tensor([9, 5, 7, 6])[:, None]
ids = torch.randint(1, 40, (4, 9)) * keep
net = Decoder()
opt = torch.optim.Adam(net.parameters())
for _ in range(2):
    loss = F.cross_entropy(net(ids, keep)[:, :-1].transpose(1, 2), ids[:, 1:], ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
