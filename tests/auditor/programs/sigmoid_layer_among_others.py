# rule: activation-before-loss
# says: the layer that applies `sigmoid` is built here
# says: through `sigmoid` the gradient of the scores is 0.2
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
layers = [nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 5)]
if BUG:
    layers.append(nn.Sigmoid())  # culprit
net = nn.Sequential(*layers)
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
x, y = torch.randn(11, 12), (torch.rand(11, 5) > 0.6).float()
criterion = nn.BCEWithLogitsLoss()
for _ in range(2):
    loss = criterion(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
