"""Functions under `torch.func`: what they did to tensors from outside, or asked of a tensor that stands for many."""

from forward_harness import Case

CASES = [
    Case("truth-of-a-mapped-tensor", """\
import torch
from torch.func import jacrev, vmap
def spring(state, stiffness):
    position, speed = state
    if speed > 0:  #! operand
        return torch.stack([speed, -stiffness[0] * position])
    return torch.stack([speed, -stiffness[1] * position])
vmap(jacrev(spring), in_dims=(0, None))(torch.randn(6, 2), torch.tensor([1.0, 0.5]))
""", "function-transform", ("`speed > 0`", "torch.where"), late=False),
    Case("number-of-a-mapped-tensor", """\
import torch
def bucket(x, edges):
    place = int((x > edges).sum())  #! operand
    return edges[place]
torch.vmap(bucket, in_dims=(0, None))(torch.rand(5), torch.linspace(0, 1, 4))
""", "function-transform", ("no single value to give to Python", "Keep it a tensor"), late=False),
    Case("write-into-a-captured-tensor", """\
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
net, seen = nn.Linear(4, 1), torch.zeros(4)
weights = {name: value.detach() for name, value in net.named_parameters()}
def loss(weights, x, y):
    seen.add_(x.abs())  #! mutate
    return (functional_call(net, weights, (x,)) - y).pow(2).sum()
vmap(grad(loss), in_dims=(None, 0, 0))(weights, torch.randn(5, 4), torch.randn(5))
""", "function-transform", ("`seen` has shape [4]", "from outside"), late=False),
]
