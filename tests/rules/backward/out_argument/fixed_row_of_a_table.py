import torch

torch.manual_seed(0)
scale = torch.randn(3, requires_grad=True)
table = torch.zeros(4, 3)
for i in range(4):
    table[i] = torch.mul(torch.randn(3), scale)
table.pow(2).sum().backward()
