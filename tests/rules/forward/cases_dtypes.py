"""Dtypes that do not go together where another rule, an index or a mask might be blamed; and what autocast has made of another dtype."""

from forward_harness import Case

CASES = [
    Case("sums-into-another-dtype", """\
import torch
def pooled(h, graph, graphs):
    out = torch.zeros(graphs, h.size(1), dtype=torch.float64)  #! create
    return out.index_add(0, graph, h)  #! operand
pooled(torch.randn(5, 3), torch.tensor([0, 0, 1, 1, 1]), 2)  #! create
""", "dtype-mismatch", ("`h` is float32", "`out` [2, 3] is float64")),
    Case("scattered-through-a-mask", """\
import torch
x = torch.zeros(4)
keep = torch.tensor([True, False, True, False])
values = torch.ones(2).double()  #! create
x.masked_scatter_(keep, values)  #! operand
""", "dtype-mismatch", ("`values` is float64, the other is float32",)),
    Case("attention-of-two-dtypes", """\
import torch
q, k = torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8, dtype=torch.float64)  #! create
torch.nn.functional.scaled_dot_product_attention(q, k.float(), k)  #! operand
""", "dtype-mismatch", ("`k` is float64",)),
    Case("a-recurrent-layer-given-doubles", """\
import torch
net = torch.nn.GRU(3, 4)
x = torch.randn(5, 2, 3).double()  #! create
net(x)  #! operand
""", "dtype-mismatch", ("`x` is float64, the weights of `net` are float32",)),
    Case("a-condition-of-numbers", """\
import torch
m = torch.tensor([0.0, 1.0, 1.0])  #! create
torch.where(m, torch.ones(3), torch.zeros(3))  #! operand
""", "mask-shape", ("`m` is no boolean mask: dtype float32", "m.bool()")),
    Case("autocast-in-a-step", """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 1)
    def forward(self, x):
        return self.second(torch.relu(self.first(x)))  #! create
net, seen = Net(), torch.zeros(3, 1)
with torch.autocast("cpu", dtype=torch.bfloat16):  #! create
    out = net(torch.randn(3, 4))
    seen[torch.arange(3)] = out.detach()  #! operand
""", "dtype-mismatch", ("Under `torch.autocast`", "`out.detach()` is bfloat16"), late=(11, 12)),
    Case("autocast-is-over", """\
import torch
from torch import nn
def features(net, x):
    with torch.amp.autocast(device_type="cpu", dtype=torch.bfloat16):  #! create
        return net(x)  #! create
net, head = nn.Linear(4, 8), nn.Linear(8, 2)
h = features(net, torch.randn(3, 4))
head(torch.relu(h))  #! operand
""", "dtype-mismatch", ("Under `torch.autocast`", "from `net(x)`"), late=(8,)),
]
