# rule: silent-broadcast, exactly
BUG = True
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1))
optimizer = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(2):
    x, weights = torch.randn(16, 5), torch.rand(16)
    prediction = net(x).squeeze(-1)
    single = nn.functional.huber_loss(prediction, x.sum(1), reduction="none")
    if BUG:
        weights = weights[:, None]  # culprit
    loss = (single * weights).mean()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
