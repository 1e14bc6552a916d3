from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

net = nn.Linear(3, 3)


def work(scale):
    y = net(torch.randn(2, 3)) * scale
    z = y.exp()
    z = z - 1
    z.sum().backward()


w = torch.randn(3, requires_grad=True)
for _ in range(30):  # each thread counts its own nodes
    (w * 2).sin().sum().backward()
with ThreadPoolExecutor(1) as pool:
    list(pool.map(work, [1.0, 2.0]))
# says: `z`
