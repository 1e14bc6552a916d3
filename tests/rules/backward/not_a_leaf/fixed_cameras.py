import torch
from torch import nn


def calibrate(renderer, target):
    cameras = torch.randn(6, 4, requires_grad=True).double().detach().requires_grad_()
    opt = torch.optim.SGD([cameras], lr=0.1)
    for _ in range(2):
        loss = (renderer(cameras) - target).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return cameras


torch.manual_seed(0)
calibrate(nn.Linear(4, 3).double(), torch.rand(6, 3).double())
