import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(30, 16)
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.o = nn.Linear(16, 3)
    def forward(self, ids, mask):
        h = self.e(ids)
        a = self.q(h) @ self.k(h).transpose(1, 2) / 4
        m = mask[:, None, :] & mask[:, :, None]
        w = torch.where(m, a, torch.full_like(a, -1e9)).softmax(-1)
        h = w @ h
        out = torch.empty(4, 16)
        out.copy_((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return self.o(out)
model = Att()
opt = torch.optim.Adam(model.parameters())
for _ in range(3):
    lens = torch.tensor([6, 3, 5, 8])
    mask = torch.arange(8)[None] < lens[:, None]
    ids = torch.randint(1, 30, (4, 8)) * mask
    loss = F.cross_entropy(model(ids, mask), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
