import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
energy = (w**2).sum()
gradient = torch.autograd.grad(energy, [w])  # culprit: call
with torch.no_grad():
    w -= 0.1 * w.grad  # culprit: operand

# says: without storing
