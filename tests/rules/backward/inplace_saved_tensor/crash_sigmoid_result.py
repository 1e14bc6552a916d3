import torch

w = torch.randn(4, 4, requires_grad=True)
gate = torch.sigmoid(w @ torch.ones(4))  # culprit: save
gate.mul_(0.5)  # culprit: mutate
gate.sum().backward()
# says: gate
