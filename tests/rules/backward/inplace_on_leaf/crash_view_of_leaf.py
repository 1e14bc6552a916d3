import torch

weights = torch.randn(4, 2, requires_grad=True)
row = weights[0]  # culprit: create
row.mul_(2)  # culprit: mutate
# says: weights
