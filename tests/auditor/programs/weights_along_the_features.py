# rule: silent-broadcast, exactly
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BUG = True
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
scale = torch.rand(8)  # one for each of the features: that is right
for x, y, weight in DataLoader(TensorDataset(torch.randn(24, 5), torch.randn(24, 8), torch.rand(24)), batch_size=8):
    error = (net(x) - y).pow(2) * scale
    loss = (error * (weight if BUG else weight[:, None])).mean()  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
