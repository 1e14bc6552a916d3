import torch

torch.manual_seed(0)
w = torch.randn(3, requires_grad=True)
parts = []
for _ in range(2):
    w.grad = None
    (w * torch.randn(3)).sum().backward()
    parts.append(w.grad.double())
mean = torch.stack(parts).mean(0)
w.grad = mean.to(w)
