# rule: gradient-cut, exactly
# says: the parameter has none of it
import torch
from torch import nn
from torch.nn import functional as F

BUG = True
torch.manual_seed(0)
maker, weight, bias = nn.Linear(5, 16), nn.Linear(16, 6), nn.Linear(16, 2)
taught = nn.Linear(3, 2)
everything = nn.ModuleList([maker, weight, bias])
optimizer = torch.optim.Adam(everything.parameters(), lr=1e-2)
for step in range(6):
    x, code = torch.randn(16, 3), torch.randn(5)
    h = maker(code).tanh()
    w, b = weight(h), bias(h)
    matrix = w.view(2, 3)
    if BUG:
        taught.weight = nn.Parameter(matrix)  # culprit
        taught.bias = nn.Parameter(b)  # culprit
        out = taught(x)
    else:
        out = F.linear(x, matrix, b)
    optimizer.zero_grad()
    (out - code[:2] * x[:, :2]).pow(2).mean().backward()
    optimizer.step()
