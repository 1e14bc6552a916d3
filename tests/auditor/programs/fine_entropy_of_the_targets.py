import math

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(6, 3)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
soft = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(3), 16)).float()
seen = []


def divergence(scores, target):
    seen.append(scores.detach().numpy().mean())  # only looked at
    scale = 0.5 * torch.log(torch.tensor(2 * math.pi))
    return -(target * scores.log_softmax(-1)).sum(-1).mean() + (target * target.log()).sum(-1).mean() + scale


for _ in range(3):
    loss = divergence(net(torch.randn(16, 6)), soft)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
