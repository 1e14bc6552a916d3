# rule: view-for-transpose
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class MHA(nn.Module):
    def __init__(self, d=16, h=4):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
    def split(self, t):
        B, T, C = t.shape
        if BUG:
            return t.view(B, self.h, T, C // self.h)  # culprit
        return t.view(B, T, self.h, C // self.h).transpose(1, 2)
    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v)
        B, H, T, D = y.shape
        return self.o(y.transpose(1, 2).reshape(B, T, H * D)) if not BUG else self.o(y.reshape(B, T, H * D))
model = nn.Sequential(nn.Linear(6, 16), MHA(), nn.Flatten(), nn.Linear(16 * 5, 3))
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = F.cross_entropy(model(torch.randn(4, 5, 6)), torch.randint(0, 3, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
