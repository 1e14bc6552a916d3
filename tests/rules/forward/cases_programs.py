"""Programs as users write them that were once explained wrongly or not far enough, with the lines to be named."""

from forward_harness import Case

CASES = [
    Case("flatten-inside-sequential", """\
import torch
from torch import nn
class Classifier(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, hidden), nn.ReLU())  #! create
    def forward(self, x):
        return self.body(x)  #! operand
settings = {"hidden": 64}
model = Classifier(settings["hidden"])
model(torch.randn(16, 1, 32, 32))  #! create
""", "matmul-shape", ("1024", "784", "[16, 1024]"), late=False),
    Case("attention-over-other-features", """\
import torch
from torch import nn
layer = nn.TransformerDecoderLayer(32, 4, 32, batch_first=True)  #! create
encoder = nn.Linear(10, 64)  #! create
memory = encoder(torch.randn(2, 9, 10))
layer(torch.randn(2, 5, 32), memory)  #! operand
""", "matmul-shape", ("`memory` has 64 features", "takes 32"), late=(5, 6)),
    Case("first-is-the-odd-one", """\
import torch
rows = [torch.zeros(4 if i == 0 else 3) for i in range(4)]  #! create
torch.stack(rows)  #! operand
""", "cat-shape", ("`rows[0]`, has [4] where the others have [3]",), late=False),
    Case("heads-do-not-divide", """\
import torch
heads = 8  #! create
x = torch.randn(2, 10, 60)  #! create
x.view(2, 10, heads, 60 // heads)  #! operand
""", "view-size", ("8 × 7 = 56", "60 is not divisible by 8")),
    Case("one-hot-labels", """\
import torch
import torch.nn.functional as F
y = torch.randint(0, 5, (6,))
target = F.one_hot(y, 5)  #! create
F.cross_entropy(torch.randn(6, 5), target)  #! operand
""", "loss-target", ("argmax(1)", "int64")),
    Case("cast-in-the-call", """\
import torch
from torch import nn
labels = torch.randint(0, 5, (8,))  #! create
logits = torch.randn(8, 5)  #! create
nn.BCEWithLogitsLoss()(logits, labels.float())  #! operand
""", "loss-target", ("[8, 5]", "`labels.float()` [8]")),
    Case("squeeze-takes-the-batch", """\
import torch
from torch import nn
norm = nn.BatchNorm1d(10)  #! create
for batch in torch.randn(5, 10).split(2):
    h = batch.squeeze()  #! create
    norm(h)  #! operand
""", "norm-shape", ("is 1D", "names no dimension", "batch of one")),
    Case("squeeze-takes-the-batch-before-a-layer", """\
import torch
layer = torch.nn.Linear(6, 4)
for n in (3, 1):
    rows = torch.randn(n, 6)
    x = rows.squeeze()  #! create
    layer(x)[:, 0]  #! index
""", "dimension-out-of-range", ("[4]", "names no dimension"), late=False),
    Case("counter", """\
import torch
class Buffer:
    def __init__(self):
        self.data = torch.zeros(3, 2)
        self.pos = 0
    def push(self, row):
        self.data[self.pos] = row  #! index
        self.pos += 1  #! create
buffer = Buffer()
for t in range(5):
    buffer.push(torch.ones(2))
""", "index-out-of-range", ("self.pos = 3",)),
    Case("number-of-the-constructor", """\
import torch
class Pool(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
    def forward(self, x):
        return x.mean(dim=self.dim)  #! index
x = torch.randn(2, 5)  #! create
pool = Pool(2)  #! create
pool(x)
""", "dimension-out-of-range", ("2", "-2…1"), late=False),
    Case("numpy-behind-a-function", """\
import numpy as np
import torch
def load(n):
    data = np.zeros((n, 4))
    return torch.from_numpy(data), torch.zeros(n, 1)  #! create
X, y = load(8)
model = torch.nn.Linear(4, 1)
model(X)  #! operand
""", "dtype-mismatch", ("`X`", "float64", "from_numpy")),
    Case("gather-from-a-temporary", """\
import torch
q = torch.nn.Linear(3, 5)  #! create
actions = torch.tensor([[0], [7]])  #! create
q(torch.randn(2, 3)).gather(1, actions)  #! index
""", "index-out-of-range", ("`actions[1, 0]` = 7", "0…4"), late=False),
    Case("decorator-between", """\
import functools
import torch
def logged(f):
    @functools.wraps(f)
    def call(*args, **kwargs):
        return f(*args, **kwargs)
    return call
@logged
def product(a, b):
    return a @ b  #! operand
left = torch.randn(4, 3)  #! create
right = torch.randn(5, 2)  #! create
product(left, b=right)
""", "matmul-shape", ("`a` [4, 3]", "3 against 5")),
    Case("action-of-another-width", """\
import torch
from torch import nn
class Critic(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.q = nn.Linear(obs + act, 4)  #! create
    def forward(self, s, a):
        return self.q(torch.cat([s, a], dim=-1))  #! operand
sizes = {"obs": 11,
         "act": 3}  #! create
critic = Critic(sizes["obs"], sizes["act"])
critic(torch.randn(5, sizes["obs"]), torch.randn(5, 1))  #! create
""", "matmul-shape", ("are 11 + 1", "has the 1 in its 12 from here"), late=False),
    Case("as-many-pixels-as-channels-after-pooling", """\
import torch
from torch import nn
x = torch.rand(1, 8, 16, 16)
small = nn.functional.max_pool2d(x, 2)  #! create
other = torch.rand(1, 8, 4, 4)  #! create
small + other  #! operand
""", "broadcast-mismatch", ("`small` has its 8 at dimension 3 from here",), late=False),
    Case("rows-are-not-to-blame", """\
import torch
from torch import nn
fc = nn.Linear(3, 64)  #! create
maps = fc(torch.randn(5, 3)).view(-1, 8, 4, 4)  #! operand
""", "view-size", ("64; it is to be split into 8 × 4 × 4", "with 4 instead of 8"), late=False),
    Case("time-read-as-batch", """\
import torch
from torch import nn
rnn = nn.LSTM(3, 4)  #! create
x = torch.randn(6, 9, 3)  #! create
zeros = torch.zeros(1, 6, 4)  #! create
rnn(x, (zeros, zeros))  #! operand
""", "recurrent-state", ("`batch_first` may be missing",), late=False),
    Case("state-of-two-directions", """\
import torch
from torch import nn
encoder = nn.GRU(3, 4, bidirectional=True)  #! create
decoder = nn.GRU(3, 4)  #! create
x = torch.randn(5, 2, 3)
_, state = encoder(x)  #! create
decoder(x, state)  #! operand
""", "recurrent-state", ("[2, 2, 4]; `decoder` needs [1, 2, 4]",), late=False),
    Case("second-input-of-two", """\
import torch
from torch import nn
class Logged(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, *args):
        return self.inner(*args)  #! operand
net = Logged(nn.Bilinear(4, 5, 2))  #! create
net(torch.randn(3, 4), torch.randn(3, 6))  #! create
""", "matmul-shape", ("`args[1]` has 6 features", "takes 5", "in2_features=6"), late=(8, 9)),
    Case("more-samples-than-rows", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Pairs(Dataset):
    def __init__(self, a, b):
        self.a, self.b = a, b
    def __len__(self):
        return len(self.a)  #! create
    def __getitem__(self, k):
        return self.a[k], self.b[k]  #! index
few = torch.randn(6, 3)  #! create
for _ in DataLoader(Pairs(torch.randn(8, 3), few), batch_size=4):
    pass
""", "index-out-of-range", ("k = 6", "how many samples there are", "at most the 6"), late=False),
    Case("mask-taken-from-one", """\
import torch
mask = torch.tensor([1, 0]) > 0  #! create
1 - mask  #! operand
""", "dtype-mismatch", ("`-` does not take bool",), late=False),
    Case("scaled-by-a-temporary", """\
import torch
from torch import nn
nodes = 5  #! create
x, fc = torch.randn(nodes, 8), nn.Linear(8, 8)  #! create
goal = torch.tensor([0, 5])  #! create
fc(x)[goal]  #! index
""", "index-out-of-range", ("of `fc(x)`, which has size 5",), late=(5, 6)),
    Case("doubled-layer", """\
import torch
from torch import nn
layer = nn.Linear(4, 4).double()  #! create
x = torch.randn(2, 4)
layer(x)  #! operand
""", "dtype-mismatch", ("`x` is float32",), late=False),
    Case("whole-numbers-selected", """\
import torch
ids = torch.tensor([0, 4])  #! create
torch.arange(12).view(4, 3).index_select(1, ids)  #! index
""", "index-out-of-range", ("`ids[1]` = 4", "0…2"), late=(2, 3)),
    Case("padded-on-both-sides", """\
import torch
from torch import nn
class Causal(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel, padding=kernel - 1)  #! create
    def forward(self, x):
        return x + self.conv(x)  #! operand
Causal(4, 3)(torch.randn(2, 4, 50))  #! create
""", "broadcast-mismatch", ("50 against 52", "kernel, stride and padding"), late=False),
    Case("crop-past-the-border", """\
import torch
def crop(x, top, height):
    return x.narrow(1, top, height)  #! index
image = torch.rand(3, 32)  #! create
crop(image, 28, height=8)  #! create
""", "index-out-of-range", ("positions 28…35 of a dimension of size 32",)),
    Case("windows-too-wide", """\
import torch
def windows(x, k):
    return x.unfold(0, k, 1)  #! operand
x = torch.arange(5.)  #! create
windows(x, k=9)  #! create
""", "conv-shape", ("too few for windows of 9",)),
    Case("padding-in-a-bag", """\
import torch
from torch import nn
def padded(rows, width):
    out = torch.full((len(rows), width), -1)  #! create
    for k, row in enumerate(rows):
        out[k, : len(row)] = torch.tensor(row)
    return out
bags = nn.EmbeddingBag(5, 2)
x = padded([[1, 2], [3]], 3)
bags(x)  #! index
""", "index-out-of-range", ("`x[0, 2]` = -1", "torch reads it as one row, [6]"), late=False),
    Case("codes-of-another-width", """\
import torch
codes = torch.randn(16, 8)  #! create
torch.cdist(torch.randn(5, 10), codes)  #! operand
""", "matmul-shape", ("rows of different lengths: 10 against 8",)),
]
