"""Optimizers that got no parameters: of layers in a plain list, of a model without any, of an iterator that was used up."""

from forward_harness import Case

CASES = [
    Case("layers-in-a-plain-list", """\
import torch
from torch import nn
class Tower(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(depth)]  #! create
def main():
    tower = Tower(3)
    return torch.optim.Adam(tower.parameters(), lr=0.1)  #! operand
main()
""", "empty-optimizer", ("`tower` owns none", "`self.layers` of it is a list of 3 modules (Linear)", "nn.ModuleList")),
    Case("parameters-gone-through-twice", """\
import torch
net = torch.nn.Linear(3, 2)
weights = net.parameters()  #! create
total = sum(weight.numel() for weight in weights)
torch.optim.SGD(weights, lr=0.1)  #! operand
""", "empty-optimizer", ("`net` (Linear) has 2 parameters", "list(net.parameters())")),
    Case("a-model-without-layers", """\
import torch
class Mean(torch.nn.Module):
    def forward(self, x):
        return x.mean()
mean = Mean()
torch.optim.SGD(mean.parameters(), lr=0.1)  #! operand
""", "empty-optimizer", ("owns no parameter",)),
]
