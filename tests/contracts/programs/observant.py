"""Sees what torch tells a program: warnings with the place they are for, anomaly mode's stacks, its own kinds of tensors."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function

nn.Sequential(nn.Linear(3, 3), nn.Softmax())(torch.ones(2, 3))  # warns for the caller of a caller
nn.LogSoftmax()(torch.ones(2, 3))
F.softmin(torch.ones(2, 3))


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("told of", func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


told = torch.ones(2).as_subclass(Told)
F.relu(told + 1).mul_(2)


class Operator:
    """Has no name."""

    def __call__(self, x):
        return handle_torch_function(self, (x,), x) if has_torch_function((x,)) else x * 2


class Answering(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "answered" if isinstance(func, Operator) else super().__torch_function__(func, types, args, kwargs or {})


print(Operator()(torch.ones(2).as_subclass(Answering)), Operator()(torch.ones(2)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x):
        h = F.sigmoid(self.inner(x))
        h.register_hook(lambda gradient: print("in backward"))
        h += told
        return F.dropout(h, 0.1)


with torch.autograd.set_detect_anomaly(True):
    Net()(torch.ones(1, 2)).sum().backward()
