import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Dropout(.3), nn.Linear(16, 5))
opt = torch.optim.SGD(m.parameters(), .1)
X, Y = torch.randn(32, 10), torch.randint(0, 5, (32,))
for i in range(0, 32, 8):
    loss = F.cross_entropy(m(X[i:i+8]), Y[i:i+8])
    opt.zero_grad()
    loss.backward()
    opt.step()
m.eval()
for l in m.modules():
    if isinstance(l, nn.Dropout):
        l.train()
with torch.no_grad():
    p = torch.stack([m(X).softmax(-1) for _ in range(5)])
    print((p.mean(0).argmax(-1) == Y).float().mean().item(), p.var(0).mean().item())
