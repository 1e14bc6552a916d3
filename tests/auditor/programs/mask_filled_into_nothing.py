# rule: result-dropped, exactly
# says: no operation took its result
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, query, keys, valid):
        scores = torch.einsum("bd,bnd->bn", self.q(query), self.k(keys))
        if BUG:
            scores.masked_fill(~valid, -1e9)  # culprit
        else:
            scores = scores.masked_fill(~valid, -1e9)
        return scores


net = Pointer()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for _ in range(3):
    valid = torch.rand(6, 5) > 0.3
    valid[:, 0] = True
    loss = F.cross_entropy(net(torch.randn(6, 8), torch.randn(6, 5, 8), valid), torch.zeros(6, dtype=torch.long))
    opt.zero_grad()
    loss.backward()
    opt.step()
