import torch

torch.manual_seed(0)
scale = torch.randn(3, requires_grad=True)  # culprit: create
table = torch.zeros(4, 3)
for i in range(4):
    torch.mul(torch.randn(3), scale, out=table[i])  # culprit: mutate
table.pow(2).sum().backward()
