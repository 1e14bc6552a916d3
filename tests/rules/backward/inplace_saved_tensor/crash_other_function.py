import torch


def normalise_(t):
    t -= t.mean()  # culprit: mutate
    return t


def energy(t):
    return (t * t).sum()  # culprit: save


x = torch.randn(6, requires_grad=True)
h = x * 3
e = energy(h)
normalise_(h)
(e + h.sum()).backward()
