import torch
from torch import nn


def unit(w):
    return w / w.norm(dim=-1, keepdim=True)


prototypes = nn.Parameter(torch.randn(5, 8))
loss = (torch.randn(6, 8) @ unit(prototypes).T).logsumexp(1).mean()
loss.backward()
