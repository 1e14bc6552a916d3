# rule: silent-broadcast
# says: one of them was computed from the model's result
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
X = torch.randn(96, 8)
Y = (X[:, 0] > 0).float().view(-1, 1)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), 1e-2)
correct = 0
for i in range(0, 96, 32):
    xb, yb = X[i : i + 32], Y[i : i + 32]
    out = net(xb)
    loss = nn.functional.binary_cross_entropy_with_logits(out, yb)
    chosen = (out > 0).squeeze(1) if BUG else out > 0
    correct += (chosen == yb).sum().item()  # culprit
    opt.zero_grad()
    loss.backward()
    opt.step()
print(correct / 96)
