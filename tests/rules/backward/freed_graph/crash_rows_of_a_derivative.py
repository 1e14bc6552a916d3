# says: retain_graph=True
import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)  # culprit: create
rows = []
for i in range(3):
    rows += torch.autograd.grad(slope[i], x)  # culprit: operand  # culprit: call
print(torch.stack(rows))
