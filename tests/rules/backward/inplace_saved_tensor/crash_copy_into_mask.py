import torch

scores = torch.randn(4, 4, requires_grad=True)
mask = torch.zeros(4, 4)
weights = scores * mask  # culprit: save
for i in range(4):
    mask[i, : i + 1] = 1.0  # culprit: mutate
weights.sum().backward()
# says: 4 times mask
