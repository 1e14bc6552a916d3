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
vmap(jacrev(spring), in_dims=(0, None))(torch.randn(6, 2), torch.tensor([1.0, 0.5]))  #! call
""", "function-transform", ("`speed > 0`", "torch.where"), late=False),
    Case("number-of-a-mapped-tensor", """\
import torch
def bucket(x, edges):
    place = int((x > edges).sum())  #! operand
    return edges[place]
torch.vmap(bucket, in_dims=(0, None))(torch.rand(5), torch.linspace(0, 1, 4))  #! call
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
vmap(grad(loss), in_dims=(None, 0, 0))(weights, torch.randn(5, 4), torch.randn(5))  #! call
""", "function-transform", ("`seen` has shape [4]", "from outside"), late=False),
    Case("random-numbers-under-vmap", """\
import torch
from torch import nn
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(3, 3)
    def forward(self, x):
        return self.scale(x + torch.randn_like(x))  #! operand
noisy = Noisy()
many = torch.vmap(noisy)  #! create
many(torch.ones(5, 3))  #! call
""", "function-transform", ("draws random numbers", "`randn_like`", "without the mapped dimension"), late=False),
    Case("fewer-dimensions-than-arguments", """\
import torch
def near(point, table, power):
    return (table - point).abs().pow(power).sum(1)
def nearest(points, table):
    each = torch.vmap(near, in_dims=(0, None))  #! create
    return each(points, table, 2).argmin(1)  #! operand
nearest(torch.randn(4, 3), torch.randn(6, 3))
""", "function-transform", ("told of 2 arguments and got 3", "`points` has shape [4, 3]", "in_dims=(0, None, None)"), late=False),
    Case("a-number-is-mapped", """\
import torch
def scaled(x, factor):
    return x * factor
print(torch.vmap(scaled)(torch.ones(3, 2), 0.5))  #! operand
""", "function-transform", ("cannot map over a float", "in_dims=(0, None)"), late=False),
]
