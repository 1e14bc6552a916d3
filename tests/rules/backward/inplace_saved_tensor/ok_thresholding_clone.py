import torch

t = torch.randn(5, 5, requires_grad=True)
out = t.clone()
for i in range(5):
    for j in range(5):
        if out[i, j] < 0.5:
            out[i, j] = 0
(out.sum() ** 2).mean().backward()
