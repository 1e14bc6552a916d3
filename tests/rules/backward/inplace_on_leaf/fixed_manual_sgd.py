import torch

w = torch.randn(3, requires_grad=True)
for _ in range(2):
    (w * 2).sum().backward()
    w.data = w.data - 0.1 * w.grad
