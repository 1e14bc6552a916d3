# rule: not-finite, exactly
# says: What made it was not watched
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(40, 5)
y = x.sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=9.0 if BUG else 1e-3)
never = torch.full((3,), float("nan"))
for step in range(40):
    loss = ((net(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # culprit
    never[0] = loss.item()
