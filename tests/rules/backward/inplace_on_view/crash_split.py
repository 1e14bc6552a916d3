import torch


def halves(t):
    first, second = t.split(2)  # culprit: create
    first.mul_(2)  # culprit: mutate
    return torch.cat([first, second])


halves(torch.randn(4, requires_grad=True) + 0).sum().backward()
