import torch

w = torch.randn(3, requires_grad=True)
y = w * torch.ones(3)
buffer = torch.ones(3) + 1.0
y.sum().backward()
