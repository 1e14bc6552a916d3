# rule: batch-position
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(5, 16)
        self.pos = nn.Embedding(100, 16)
        self.l = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.o = nn.Linear(16, 2)
    def forward(self, x):
        h = self.e(x)
        if BUG:
            h = h + self.pos(torch.arange(h.size(0))).unsqueeze(1)  # culprit
        else:
            h = h + self.pos(torch.arange(h.size(1)))
        return self.o(self.l(h)[:, 0])
m = Enc()
opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    loss = F.cross_entropy(m(torch.randn(7, 10, 5)), torch.randint(0, 2, (7,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
