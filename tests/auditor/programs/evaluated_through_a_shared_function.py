# rule: train-mode-evaluation
BUG = True
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
optimizer = torch.optim.Adam(net.parameters())


def loss_of(x, y):
    return F.cross_entropy(net(x), y)


for epoch in range(3):
    net.train()
    loss = loss_of(torch.randn(8, 6), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not BUG:
        net.eval()
    with torch.no_grad():
        held_out = loss_of(torch.randn(8, 6), torch.randint(0, 3, (8,))).item()  # culprit
print(held_out > 0)
