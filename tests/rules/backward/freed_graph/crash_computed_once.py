import torch

w = torch.randn(4, requires_grad=True)
scale = torch.exp(w)  # culprit: create
for step in range(3):
    loss = (scale * torch.randn(4)).sum()  # culprit: operand
    loss.backward()  # culprit: call
# says: scale
