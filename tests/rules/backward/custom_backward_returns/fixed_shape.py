import torch

x = torch.randn(1, 32, 100, requires_grad=True)
x.sum(dim=1).sum().backward()
