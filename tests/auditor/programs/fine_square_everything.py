import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
N = 6  # batch = length = features = classes
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.r, self.o = nn.Embedding(20, N), nn.GRU(N, N, batch_first=True), nn.Linear(N, N)
    def forward(self, x):
        return self.o(self.r(self.e(x))[0])
m = M()
opt = torch.optim.Adam(m.parameters())
for _ in range(3):
    x, y = torch.randint(0, 20, (N, N)), torch.randint(0, N, (N, N))
    loss = F.cross_entropy(m(x).transpose(1, 2), y)
    opt.zero_grad(); loss.backward(); opt.step()
print(loss.item())
