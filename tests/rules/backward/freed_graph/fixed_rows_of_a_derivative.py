import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
(slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
rows = []
for i in range(3):
    rows += torch.autograd.grad(slope[i], x, retain_graph=True)
print(torch.stack(rows))
