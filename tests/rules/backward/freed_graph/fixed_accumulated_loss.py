import torch

w = torch.randn(3, requires_grad=True)
total = 0
for step in range(3):
    loss = (w**2).sum()
    total = total + loss
    total.backward()
    total = total.detach()
