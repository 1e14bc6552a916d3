import torch

x = torch.randn(3, requires_grad=True)
parts = [x * k for k in range(1, 4)]
energies = [p * p for p in parts]
parts = [p.clamp(min=0) for p in parts]
sum(e.sum() for e in energies).backward()
