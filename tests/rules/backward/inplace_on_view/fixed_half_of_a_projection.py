import torch
from torch import nn

torch.manual_seed(0)


def modulated(projection, x, hidden):
    h = projection(x)
    scale, shift, gate = h[:, :hidden], h[:, hidden : 2 * hidden], h[:, 2 * hidden :]
    scale += 1
    return h.pow(2).mean() + (x * scale + shift).mean() * gate.mean()


modulated(nn.Linear(4, 9), torch.randn(3, 4), 4).backward()
# says: `scale` [3, 4]
