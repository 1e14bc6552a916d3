"""Programs whose wrong number was chosen far from where it failed: computed sizes, renamed arguments, crops, masks, dictionaries."""

from forward_harness import Case

CASES = [
    Case("a-table-in-float32-meets-half", """\
import torch
from torch import nn
class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(10, 8)  #! create
    def forward(self, x):
        return x + self.table[: x.size(1)]  #! create
model = nn.Sequential(Positions(), nn.Linear(8, 4)).half()
x = torch.randn(2, 6, 8).half()
model(x)  #! operand
""", "dtype-mismatch", ("Its input is float32, the others are float16", "met another dtype here"), late=(9, 11)),
    Case("side-of-a-configuration", """\
import torch
from dataclasses import dataclass
from torch import nn
@dataclass
class Config:
    channels: tuple = (4, 8)
    side: int = 32  #! create
class Net(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in zip((1, *cfg.channels), cfg.channels))
        left = cfg.side // 2 ** len(cfg.channels)
        self.head = nn.Linear(cfg.channels[-1] * left * left, 10)  #! create
    def forward(self, x):
        for layer in self.layers:
            x = nn.functional.max_pool2d(layer(x).relu(), 2)
        return self.head(x.flatten(1))  #! operand
def cropped(photo, size):
    return photo[..., :size, :size]  #! create
Net(Config())(cropped(torch.rand(2, 1, 40, 40), 28))  #! create
""", "matmul-shape", ("are 8 × 7 × 7", "the 512 is computed from this"), late=False),
    Case("hands-on-its-width", """\
import torch
from torch import nn
class Head(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(features), nn.Linear(features, classes)  #! create
    def forward(self, x):
        return self.out(self.norm(x))  #! operand
class Model(nn.Module):
    def __init__(self, width=12):  #! create
        super().__init__()
        self.rnn = nn.GRU(3, width, bidirectional=True)  #! create
        self.head = Head(width, 2)  #! create
    def forward(self, x):
        return self.head(self.rnn(x)[0][-1])  #! create
Model()(torch.randn(5, 2, 3))
""", "norm-shape", ("width is given here", "the 12 is set here"), late=False),
    Case("nothing-passes-the-mask", """\
import torch
def best(boxes, scores, least):
    keep = scores > least  #! create
    return boxes[keep][scores[keep].argmax()]  #! operand
best(torch.rand(5, 4), torch.rand(5), 50)
""", "empty-tensor", ("is empty, shape [0]", "this mask is false everywhere"), late=False),
    Case("swapped-weights-of-a-dictionary", """\
import torch
from torch import nn
net, kernels = nn.Sequential(nn.Linear(3, 5, bias=False)), {"0.weight": torch.zeros(3, 5)}  #! create
def load(model, state):
    model.load_state_dict(state)  #! operand
load(net, kernels)
""", "state-dict", ("dimensions are swapped", "`weight.t()`"), late=False),
    Case("mask-index-and-half-values", """\
import torch
bank, rows = torch.zeros(6, 2), torch.tensor([1, 4])
half = torch.ones(2, 2).bfloat16()  #! create
bank[rows] = half * 2  #! operand
""", "dtype-mismatch", ("`half * 2` is bfloat16, the other is float32",), late=False),
    Case("history-kept-in-a-list", """\
import numpy as np
import torch
from torch import nn
class Meter:
    def __init__(self):
        self.seen = []
    def scores(self):
        return np.concatenate([part.numpy() for part in self.seen])  #! operand
net, meter = nn.Linear(2, 1), Meter()
meter.seen.append(net(torch.ones(3, 2)))  #! create
meter.scores()
""", "numpy-conversion", ("`part` [3, 1] comes from here",), late=False),
    Case("odd-height", """\
import torch
from torch import nn
def images(count, height=18, width=16):  #! create
    return torch.rand(count, 1, height, width)  #! create
down, up = nn.Conv2d(1, 2, 3, stride=4, padding=1), nn.ConvTranspose2d(2, 1, 4, stride=4)
x = images(2)
torch.cat([x, up(down(x))], dim=1)  #! operand
""", "cat-shape", ("has its 18 at dimension 2 from here", "the 18 is set here"), late=False),
    Case("mapped-rows", """\
import torch
from torch.func import vmap
xs, ys = torch.randn(7, 5), None
ys = torch.randn(9, 4)  #! create
def apart(a, b):
    return (a - b).square().sum()  #! operand
vmap(vmap(apart, in_dims=(None, 0)), in_dims=(0, None))(xs, ys)
""".replace("None\nys", "None  #! create\nys"), "broadcast-mismatch", ("`a` has its 5 at dimension 0", "`b` has its 4 at dimension 0"), late=False),
    Case("lengths-before-the-stride", """\
import torch
from torch import nn
down, out = nn.Conv1d(4, 6, 3, stride=3), nn.Linear(6, 5)
sound, lengths = torch.randn(2, 4, 30), torch.tensor([30, 24])  #! create
h = down(sound).transpose(1, 2)  #! create
scores = out(h).log_softmax(-1)
nn.functional.ctc_loss(scores.transpose(0, 1), torch.ones(2, 3, dtype=torch.long), lengths, torch.tensor([3, 3]))  #! operand
""", "loss-target", ("[10, 2, 5] is read as [time 10, batch 2, classes 5]", "at most 10"), late=False),
    Case("saved-by-another-model", """\
import torch
from torch import nn
def made(classes):
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, classes))  #! create
saved = {key: value.clone() for key, value in made(10).state_dict().items()}  #! create
model = made(3)  #! create
model.load_state_dict(saved)  #! operand
""", "state-dict", ("[10, 8] in the checkpoint", "the 10 is set here"), late=False),
    Case("slices-of-a-numpy-array", """\
import numpy as np
import torch
from torch import nn
table = np.zeros((8, 3))
rows = torch.from_numpy(table)  #! create
net = nn.Linear(3, 2)
for k in range(0, 8, 4):
    net(rows[k:k + 4])  #! operand
""", "dtype-mismatch", ("is float64, from `torch.from_numpy(table)`",), late=False),
    Case("state-of-another-width", """\
import torch
from torch import nn
narrow = nn.GRU(3, 4)  #! create
wide = nn.GRU(3, 6)  #! create
_, state = narrow(torch.zeros(5, 2, 3))  #! create
wide(torch.zeros(5, 2, 3), state)  #! operand
""", "recurrent-state", ("`state` has its 4 at dimension 2 from here",), late=False),
    Case("more-gates-than-experts", """\
import torch
from torch import nn
torch.manual_seed(0)
gate, experts = nn.Linear(4, 6), nn.ModuleList(nn.Linear(4, 4) for _ in range(3))  #! create
x = torch.randn(40, 4)
_, chosen = gate(x).softmax(-1).max(1)  #! create
outs = torch.stack([expert(x) for expert in experts], dim=1)
outs[torch.arange(40), chosen]  #! index
""", "index-out-of-range", ("the value ", "dimension 1 of `outs`"), late=False),
    Case("the-largest-of-the-numbers", """\
import torch
ids, table = torch.tensor([[1, 2, 7], [3, 4, 5]]), torch.zeros(6, 2)
largest = ids.max(1).values  #! create
table[largest]  #! index
""", "index-out-of-range", ("`largest[0]` = 7",), late=False),
]
