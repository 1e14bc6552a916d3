import torch

w = torch.randn(3, requires_grad=True)
buffer = torch.ones(3)
y = w * buffer  # culprit: save
torch.add(buffer, 1.0, out=buffer)  # culprit: mutate
y.sum().backward()
# says: buffer
