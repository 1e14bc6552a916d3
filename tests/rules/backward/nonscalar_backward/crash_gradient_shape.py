import torch

x = torch.ones(3, requires_grad=True)
y = x * 2  # culprit: create
y.backward(torch.ones(4))  # culprit: call
# says: [4] [3]
