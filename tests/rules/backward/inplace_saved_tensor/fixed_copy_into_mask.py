import torch

scores = torch.randn(4, 4, requires_grad=True)
weights = scores * torch.zeros(4, 4)
mask = torch.ones(4, 4).tril()
weights.sum().backward()
