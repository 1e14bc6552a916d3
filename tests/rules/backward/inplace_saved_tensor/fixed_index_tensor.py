import torch

table = torch.randn(6, 2, requires_grad=True)
picked = table[[0, 2]]
idx = torch.tensor([1, 3])
picked.sum().backward()
