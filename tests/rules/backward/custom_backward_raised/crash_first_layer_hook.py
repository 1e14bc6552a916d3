# says: `net.0` (Linear) number 0 is None
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")


def ratio(module, grad_in, grad_out):
    print(grad_in[0].norm() / grad_out[0].norm())  # culprit: operand


net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
for module in net:
    module.register_full_backward_hook(ratio)
net(torch.randn(2, 3)).mean().backward()
