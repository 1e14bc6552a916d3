import torch

weights = torch.randn(4, 2, requires_grad=True)  # culprit: create
for i in range(4):
    weights[i] = weights[i] / weights[i].norm()  # culprit: mutate
