import torch

weights = torch.randn(4, 2, requires_grad=True)
weights.data = weights.data / weights.data.norm(dim=1, keepdim=True)
