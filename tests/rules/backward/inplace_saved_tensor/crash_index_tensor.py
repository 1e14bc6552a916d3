import torch

table = torch.randn(6, 2, requires_grad=True)
idx = torch.tensor([0, 2])
picked = table[idx]  # culprit: save
idx += 1  # culprit: mutate
picked.sum().backward()
# says: idx
