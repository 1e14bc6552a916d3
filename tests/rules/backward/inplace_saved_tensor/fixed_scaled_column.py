import torch


def soften(logits):
    top = logits.exp().clone()
    for k in range(3):
        top[:, k] *= 0.5
    return top


soften(torch.randn(4, 5, requires_grad=True)).sum().backward()
