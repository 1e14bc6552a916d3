"""Layers that stay behind when their model is moved, because the model does not own them."""

from forward_harness import Case

_HEAD = """\
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.trunk = nn.Linear(6, 4)
"""

CASES = [
    Case("layers-in-a-list", _HEAD + """\
        self.heads = [nn.Linear(4, size) for size in sizes]  #! create
    def forward(self, x):
        x = self.trunk(x).relu()
        return [head(x) for head in self.heads]  #! operand
model = Model([3, 5]).to("meta")
model(torch.randn(2, 6, device="meta"))
""", "device-mismatch", ("the model does not own that layer", "nn.ModuleList")),
    Case("layers-in-a-dictionary-of-a-part", _HEAD + """\
        self.tasks = {"a": nn.Sequential(nn.Linear(4, 3), nn.Tanh())}  #! create
    def forward(self, x, task):
        return self.tasks[task](self.trunk(x))  #! operand
class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Model([3])
    def forward(self, x):
        return self.inner(x, "a")
model = Wrapper()
model.to("meta")
model(torch.randn(2, 6, device="meta"))
""", "device-mismatch", ("the model does not own that layer", "nn.ModuleDict")),
    Case("a-layer-made-in-forward", _HEAD + """\
    def forward(self, x):
        x = self.trunk(x)
        norm = nn.LayerNorm(x.shape[-1])  #! create
        return norm(x)  #! operand
Model([]).to("meta")(torch.randn(2, 6, device="meta"))
""", "device-mismatch", ("made anew in every forward pass", "in `__init__`")),
    Case("data-left-behind-is-no-layer-left-behind", _HEAD.replace("nn.Linear(6, 4)", "nn.Linear(6, 4)  #! create") + """\
        self.heads = nn.ModuleList([nn.Linear(4, size) for size in sizes])
    def forward(self, x):
        return [head(self.trunk(x)) for head in self.heads]  #! operand
model = Model([3, 5])
model(torch.randn(2, 6, device="meta"))  #! create
""", "device-mismatch", ("`x` is on meta",)),
]
