import torch

x = torch.ones(3, 3, requires_grad=True) * 1
with torch.no_grad():
    x[0] += 1
    top = x[0]
