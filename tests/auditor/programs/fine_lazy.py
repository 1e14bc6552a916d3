import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.LazyConv2d(8, 3)
        self.f = nn.LazyLinear(4)
    def forward(self, x):
        return self.f(self.c(x).relu().flatten(1))
model = Net()
for i in range(3):
    x = torch.rand(4, 3, 8, 8)
    out = model(x)
    if i == 0:
        opt = torch.optim.Adam(model.parameters())
    loss = F.cross_entropy(out, torch.randint(0, 4, (4,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
