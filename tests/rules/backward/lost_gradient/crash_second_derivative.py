import torch

x = torch.randn(4, requires_grad=True)
y = (x**3).sum()
(g,) = torch.autograd.grad(y, x)  # culprit: lost-grad
g.sum().backward()  # culprit: call
# says: create_graph
