# says: `loss` is a numpy.float32
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
members = nn.ModuleList(nn.Linear(4, 2) for _ in range(3))
x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))


def losses():
    return [nn.functional.cross_entropy(member(x), y) for member in members]


loss = np.mean([item.detach().numpy() for item in losses()])  # culprit: lost-grad
loss.backward()  # culprit: call
