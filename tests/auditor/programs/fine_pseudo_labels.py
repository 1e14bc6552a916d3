import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.03)
for _ in range(4):
    x, y, u = torch.randn(8, 10), torch.randint(0, 3, (8,)), torch.randn(16, 10)
    with torch.no_grad():
        p = model(u).softmax(1)
        conf, pseudo = p.max(1)
        mask = (conf > 0.5).float()
    loss = F.cross_entropy(model(x), y) + (F.cross_entropy(model(u + 0.1), pseudo, reduction="none") * mask).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
