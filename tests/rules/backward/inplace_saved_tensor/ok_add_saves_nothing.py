import torch

x = torch.ones(3, requires_grad=True)
h = x * 2
y = h + 1
h += 1
(y.sum() + h.sum()).backward()
