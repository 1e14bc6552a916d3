import torch

points = [torch.randn(3, requires_grad=True) for _ in range(3)]  # culprit: create


def descend(points, rate):
    slopes = torch.autograd.grad(sum((p**2).sum() for p in points), points)
    for p, slope in zip(points, slopes):
        p.sub_(rate * slope)  # culprit: mutate


descend(points, 0.1)
