import torch

x = torch.ones(3, requires_grad=True)
loss = (x**2).sum()
loss.backward()  # culprit: call
loss.backward()  # culprit: call
# says: second time
