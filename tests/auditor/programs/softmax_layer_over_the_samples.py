# rule: softmax-axis
# says: the layer gets its axis here
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(8, 4)
normalise = nn.Softmax(dim=0 if BUG else 1)  # culprit
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(10, 8), torch.arange(10) % 4
for _ in range(2):
    loss = nn.functional.nll_loss(torch.log(normalise(net(x)) + 1e-8), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
