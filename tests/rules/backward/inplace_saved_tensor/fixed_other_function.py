import torch

x = torch.randn(6, requires_grad=True)
raw = x * 3
e = raw.square().sum()
h = raw - raw.mean()
(e + h.sum()).backward()
