import torch

x = torch.ones(3, 3, requires_grad=True) * 1
with torch.no_grad():
    top = x[0]  # culprit: create
top += 1  # culprit: mutate
