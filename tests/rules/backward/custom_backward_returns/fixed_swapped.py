import torch

a, b = torch.randn(2, 3, requires_grad=True), torch.randn(3, 5, requires_grad=True)
(a @ b).sum().backward()
