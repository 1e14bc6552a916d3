import torch

x = torch.ones(3, requires_grad=True)
doubled = x * 2
y = doubled**2
h = doubled.detach() + 10 - 1
y.sum().backward()
