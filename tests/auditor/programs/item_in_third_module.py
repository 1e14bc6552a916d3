# rule: gradient-cut
BUG = True
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
enc = nn.Linear(10, 8)
aux = nn.Linear(8, 1)
head = nn.Linear(8, 3)
params = [*enc.parameters(), *aux.parameters(), *head.parameters()]
opt = torch.optim.Adam(params)
for _ in range(2):
    x, y, t = torch.randn(8, 10), torch.randint(0, 3, (8,)), torch.randn(8, 1)
    h = enc(x)
    reg = F.mse_loss(aux(h), t)
    if BUG:
        reg = reg.item()  # culprit
    loss = F.cross_entropy(head(h), y) + 0.1 * reg
    opt.zero_grad()
    loss.backward()
    opt.step()
