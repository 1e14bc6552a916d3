import torch

x = torch.ones(3, requires_grad=True)
for _ in range(2):
    loss = (x**2).sum()
    loss.backward()
