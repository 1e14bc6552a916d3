# says: which `loss` was computed from, ran under `torch.no_grad()`
import torch
from torch import nn


@torch.no_grad()  # culprit: lost-grad
def unit(w):
    return w / w.norm(dim=-1, keepdim=True)  # culprit: call


prototypes = nn.Parameter(torch.randn(5, 8))
loss = (torch.randn(6, 8) @ unit(prototypes).T).logsumexp(1).mean()
loss.backward()  # culprit: call
