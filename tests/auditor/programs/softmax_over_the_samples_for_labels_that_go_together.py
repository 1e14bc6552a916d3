# rule: activation-before-loss
# says: of the 12 samples to be 1, and the outputs for it sum to 1
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(9, 5)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x = torch.randn(12, 9)
y = (x[:, :5] > 0).float()
for _ in range(2):
    p = net(x).softmax(0) if BUG else net(x).sigmoid()  # culprit
    loss = nn.functional.binary_cross_entropy(p, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
