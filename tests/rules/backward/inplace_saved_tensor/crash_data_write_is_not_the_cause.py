import torch

x = torch.ones(3, requires_grad=True)
h = x * 2
y = h**2  # culprit: save
for _ in range(2):
    h.data.add_(5)
h.sub_(1)  # culprit: mutate
y.sum().backward()
