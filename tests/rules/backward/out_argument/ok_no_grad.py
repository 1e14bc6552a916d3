import torch

scale = torch.randn(3, requires_grad=True)
buffer = torch.empty(3)
with torch.no_grad():
    torch.mul(torch.randn(3), scale, out=buffer)
(buffer * scale).sum().backward()
