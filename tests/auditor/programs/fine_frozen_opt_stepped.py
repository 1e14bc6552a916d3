import torch
from torch import nn
torch.manual_seed(0)
class N(nn.Module):
    def __init__(self):
        super().__init__()
        self.bb, self.hd = nn.Linear(8, 16), nn.Linear(16, 3)
    def forward(self, x):
        return self.hd(torch.relu(self.bb(x)))
n = N()
n.bb.requires_grad_(False)
ob, oh = torch.optim.SGD(n.bb.parameters(), 1e-3), torch.optim.Adam(n.hd.parameters(), 1e-2)
for e in range(6):
    if e == 4:
        n.bb.requires_grad_(True)
    loss = nn.functional.cross_entropy(n(torch.randn(9, 8)), torch.randint(0, 3, (9,)))
    ob.zero_grad(); oh.zero_grad(); loss.backward(); oh.step(); ob.step()
print(loss.item())
