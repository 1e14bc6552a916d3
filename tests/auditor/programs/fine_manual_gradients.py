import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Linear(10, 3)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    loss = F.cross_entropy(model(torch.randn(8, 10)), torch.randint(0, 3, (8,)))
    grads = torch.autograd.grad(loss, list(model.parameters()))
    for p, g in zip(model.parameters(), grads):
        p.grad = g
    opt.step()
