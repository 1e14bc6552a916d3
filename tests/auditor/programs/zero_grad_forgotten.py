# rule: gradients-kept
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
opt = torch.optim.Adam(model.parameters())
for _ in range(6):
    loss = F.cross_entropy(model(torch.randn(8, 10)), torch.randint(0, 3, (8,)))
    loss.backward()  # culprit
    opt.step()
    if not BUG:
        opt.zero_grad(set_to_none=False)
