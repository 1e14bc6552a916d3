# says: wrote into `top` 3 times: version 0 -> 6
# says: It was written 3 times in between
import torch


def soften(logits):
    top = logits.exp()  # culprit: save
    for k in range(3):
        top[:, k] *= 0.5  # culprit: mutate
    return top


soften(torch.randn(4, 5, requires_grad=True)).sum().backward()
