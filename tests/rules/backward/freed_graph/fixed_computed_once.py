import torch

w = torch.randn(4, requires_grad=True)
for step in range(3):
    loss = (torch.exp(w) * torch.randn(4)).sum()
    loss.backward()
