import torch

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
w = torch.randn(3, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(3):
    loss = ((x @ w + b - y) ** 2).mean()
    loss.backward()
    w = w - 0.1 * w.grad  # culprit: create
    b = b - 0.1 * b.grad

# says: `w` [3, 1] no leaf
