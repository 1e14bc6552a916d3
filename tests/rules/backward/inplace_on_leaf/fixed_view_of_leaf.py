import torch

weights = torch.randn(4, 2, requires_grad=True)
weights.data[0] *= 2
row = weights[0]
