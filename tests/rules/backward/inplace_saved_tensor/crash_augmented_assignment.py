import torch

x = torch.ones(3, requires_grad=True)
h = x * 2
y = h ** 2  # culprit: save
h += 1  # culprit: mutate
y.sum().backward()
# says: `h` [3] version 0 version 1
