# rule: activation-before-loss
# says: in one row the targets want 4 of the outputs to be 1
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 16), nn.ReLU(), nn.Linear(16, 5))
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(4, 9), torch.tensor([[1, 0, 0, 1, 0], [1, 1, 1, 0, 1], [0, 0, 0, 0, 1], [0, 1, 1, 0, 0]]).float()
for _ in range(2):
    p = net(x).softmax(-1) if BUG else net(x).sigmoid()  # culprit
    loss = nn.functional.binary_cross_entropy(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
