import torch

x = torch.ones(3, 3, requires_grad=True)
h = x * 1
for i in range(3):
    h[i] += 1
h.sum().backward()
