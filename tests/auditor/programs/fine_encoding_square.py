import math
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class C(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(60, 16)
        self.pe = nn.Parameter(torch.randn(8, 16))
        self.l = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.fc = nn.Linear(16, 4)
    def forward(self, ids):
        return self.fc(self.l(self.emb(ids) + self.pe)[:, 0])
model = C()
opt = torch.optim.SGD(model.parameters(), 0.1)
for i in range(3):
    loss = F.cross_entropy(model(torch.randint(0, 60, (8, 8))), torch.randint(0, 4, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
