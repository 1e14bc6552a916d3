import torch

args = [torch.randn(4, requires_grad=True) for _ in range(3)]
(args[0] * args[1] + args[2]).sum().backward()
