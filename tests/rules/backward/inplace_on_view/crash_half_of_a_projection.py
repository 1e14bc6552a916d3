import torch
from torch import nn

torch.manual_seed(0)


def modulated(projection, x, hidden):
    h = projection(x)
    scale, shift, gate = torch.split(h, [hidden, hidden, 1], -1)  # culprit: create
    scale += 1  # culprit: mutate
    return h.pow(2).mean() + (x * scale + shift).mean() * gate.mean()


modulated(nn.Linear(4, 9), torch.randn(3, 4), 4).backward()
# says: `scale` [3, 4]
