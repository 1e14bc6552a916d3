import torch

w = torch.randn(4, 4, requires_grad=True)
gate = 0.5 * torch.sigmoid(w @ torch.ones(4))
gate.sum().backward()
