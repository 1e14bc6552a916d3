import torch

w = torch.randn(3, requires_grad=True)  # culprit: create
for _ in range(2):
    (w * 2).sum().backward()
    w -= 0.1 * w.grad  # culprit: mutate
