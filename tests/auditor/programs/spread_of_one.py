# rule: not-finite
BUG = True
import torch
from torch import nn
torch.manual_seed(0)
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1 if BUG else 4)
        self.o = nn.Linear(1 if BUG else 4, 2)
    def forward(self, x):
        h = self.l(x)
        return self.o((h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-6))  # culprit
m = Norm()
opt = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(2):
    loss = m(torch.randn(5, 6)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
