import torch


def halves(t):
    first, second = t.split(2)
    return torch.cat([2 * first, second])


halves(torch.randn(4, requires_grad=True) + 0).sum().backward()
