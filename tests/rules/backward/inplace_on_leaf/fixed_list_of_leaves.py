import torch

points = [torch.randn(3, requires_grad=True) for _ in range(3)]


def descend(points, rate):
    slopes = torch.autograd.grad(sum((p**2).sum() for p in points), points)
    for p, slope in zip(points, slopes):
        with torch.no_grad():
            p.sub_(rate * slope)


descend(points, 0.1)
