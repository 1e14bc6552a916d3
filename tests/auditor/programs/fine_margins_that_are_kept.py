# Every sample is beyond the margin from the start: a loss of zero, and no gradient, because there is nothing to learn.
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
criterion = nn.TripletMarginLoss(1e-3)
for _ in range(3):
    a = torch.randn(8, 6)
    near, far = net(a + 1e-3 * torch.randn_like(a)), net(a + 5)
    loss = criterion(net(a), near, far) + torch.relu(1e-3 - (near - far).norm(dim=1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    assert not loss.item()
