# rule: activation-before-loss
# says: logarithms of numbers that do not sum to 1
import torch
import torch.nn.functional as F
from torch import nn

BUG = True
torch.manual_seed(0)
first, second = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5)) for _ in range(2))
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
for _ in range(4):
    x, y = torch.randn(12, 8), torch.randint(0, 5, (12,))
    share = 0.3 if BUG else 0.5
    mixed = share * first(x).softmax(-1) + 0.5 * second(x).softmax(-1)
    loss = F.nll_loss(mixed.log(), y)  # culprit
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
