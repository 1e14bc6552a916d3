import torch

x = torch.randn(4, requires_grad=True)
g = 3 * x**2
g.sum().backward()
