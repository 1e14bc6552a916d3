import torch

torch.ones(3, requires_grad=True).pow(2).sum().backward()
