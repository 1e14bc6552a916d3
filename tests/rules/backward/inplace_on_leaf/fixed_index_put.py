import torch

leaf = torch.zeros(5, requires_grad=True)
indices = torch.tensor([1, 3])
x = leaf.clone()
x[indices] = torch.tensor([1.0, 2.0])
x.sum().backward()
