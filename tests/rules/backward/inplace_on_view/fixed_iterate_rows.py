import torch

x = torch.ones(3, 3, requires_grad=True) * 1
x = x + 1
