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
        self.dim = dim  #! create
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
]
