import torch

x = torch.randn(4, 3, requires_grad=True)
g = x * 2
for k in range(2):
    g[:, k] = g[:, k].clamp(max=0.9)  # culprit: mutate  # culprit: save
g.sum().backward()
