import torch

w = torch.randn(3, requires_grad=True)
for _ in range(2):
    (w * 2).sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad.zero_()
