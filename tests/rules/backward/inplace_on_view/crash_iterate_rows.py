import torch

x = torch.ones(3, 3, requires_grad=True) * 1
for row in x:  # culprit: create
    row += 1  # culprit: mutate
