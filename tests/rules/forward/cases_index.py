"""Programs that fail at indexing, with the lines to be named."""

from forward_harness import Case

CASES = [
    Case("embedding", """\
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)  #! create

    def forward(self, ids):
        return self.table(ids).sum(-1)  #! index

def batch():
    words = torch.tensor([[1, 2, 3], [4, 12, 6]])  #! create
    return words.clone()

model = Tagger()
model(batch())
""", "index-out-of-range", ("`ids[1, 1]` = 12", "1 of 6 values is out of range", "0…9", "model.table", "nn.Embedding(10, 4)")),
    Case("ids-from-one", """\
import torch
from torch import nn
words = ["a", "b", "c"]
index = {word: number + 1 for number, word in enumerate(words)}  #! create
table = nn.Embedding(len(words), 8)  #! create
ids = torch.tensor([index[word] for word in words])
table(ids)  #! index
""", "index-out-of-range", ("`ids[2]` = 3", "0…2", "count from 1")),
    Case("ignore-label-as-index", """\
import torch
from torch import nn
labels = torch.tensor([[3, 4, -100], [5, -100, -100]])  #! create
decoder_input = labels.clone()
table = nn.Embedding(8, 2)
out = table(decoder_input)  #! index
""", "index-out-of-range", ("-100", "ignore", "3 of 6 values are out of range", "`decoder_input[0, 2]` = -100")),
    Case("written-afterwards", """\
import torch
import torch.nn.functional as F
weight = torch.randn(6, 3)  #! create
ids = torch.zeros(2, 4, dtype=torch.long)
ids[0, 1] = 5
ids[1, 2] = 6  #! create
F.embedding(ids, weight)  #! index
""", "index-out-of-range", ("`ids[1, 2]` = 6", "0…5"), late=True),
    Case("select", """\
import torch
h = torch.zeros(1, 32, 100)  #! create
def last(x):
    return x.select(0, 1)  #! index
last(h)
""", "index-out-of-range", ("[1, 32, 100]", "dimension 0", "size 1")),
    Case("plain-number", """\
import torch
x = torch.zeros(3, 4)  #! create
y = x[1, 4]  #! index
""", "index-out-of-range", ("dimension 1", "size 4", "0…3")),
    Case("loop-bound", """\
import torch
x = torch.arange(12.0).reshape(3, 4)
total = 0
for row in range(4):  #! create
    total = total + x[row].sum()  #! index
""", "index-out-of-range", ("`row` is 3", "size 3", "0…2")),
    Case("index-argument", """\
import torch
def pick(values, position):
    return values[..., position]  #! index
x = torch.zeros(2, 5)
n = x.shape[-1]  #! create
pick(x, n)
""", "index-out-of-range", ("`position` is 5", "dimension 1")),
    Case("column-index-misleading-message", """\
import torch
x = torch.zeros(3, 4)
columns = torch.tensor([0, 4])  #! create
y = x[:, columns]  #! index
""", "index-out-of-range", ("dimension 1", "-4…3", "The message says dimension 0")),
    Case("temporary-index", """\
import torch
x = torch.zeros(5)
i = torch.tensor([1, 4])
y = x[i + 1]  #! index
""", "index-out-of-range", ("= 5", "-5…4")),
    Case("gather", """\
import torch
scores = torch.randn(2, 3)
labels = torch.tensor([1, 3])  #! create
picked = scores.gather(1, labels.unsqueeze(1))  #! index
""", "index-out-of-range", ("= 3", "0…2", "dimension 1")),
    Case("scatter", """\
import torch
rows = torch.tensor([[0], [5]])  #! create
out = torch.zeros(2, 4)
out.scatter_(1, rows, 1.0)  #! index
""", "index-out-of-range", ("`rows[1, 0]` = 5", "0…3")),
    Case("index-select", """\
import torch
table = torch.randn(4, 2)
wanted = torch.arange(5)  #! create
table.index_select(0, wanted)  #! index
""", "index-out-of-range", ("`wanted[4]` = 4", "0…3")),
    Case("index-add", """\
import torch
sums = torch.zeros(3)
groups = torch.tensor([0, 1, 3])  #! create
sums.index_add_(0, groups, torch.ones(3))  #! index
""", "index-out-of-range", ("`groups[2]` = 3", "0…2")),
    Case("index-put", """\
import torch
grid = torch.zeros(3, 3)
rows, columns = torch.tensor([0, 3]), torch.tensor([0, 1])  #! create
grid[rows, columns] = 1.0  #! index
""", "index-out-of-range", ("`rows[1]` = 3", "-3…2")),
    Case("take-along-dim", """\
import torch
x = torch.randn(2, 3)
order = torch.tensor([[0, 1, 3]])  #! create
torch.gather(x, dim=1, index=order)  #! index
""", "index-out-of-range", ("`order[0, 2]` = 3",)),
    Case("too-many-indices", """\
import torch
def first(batch):
    return batch[0, :, 2]  #! index
x = torch.zeros(3, 4)  #! create
first(x)
""", "dimension-out-of-range", ("3 indices", "2 dimensions", "[3, 4]")),
    Case("dim-out-of-range", """\
import torch
x = torch.zeros(3, 4)  #! create
axis = 2  #! create
x.sum(dim=axis)  #! index
""", "dimension-out-of-range", ("-2…1", "`dim` = 2")),
    Case("index-a-number", """\
import torch
x = torch.ones(3)
loss = x.sum()  #! create
print(loss[0])  #! index
""", "dimension-out-of-range", ("item()",)),
    Case("float-index", """\
import torch
x = torch.arange(10)
middle = torch.tensor([4, 6]) / 2  #! create
x[middle]  #! index
""", "index-dtype", ("float32", "int64")),
    Case("float-python-index", """\
import torch
x = torch.arange(10)
half = len(x) / 2  #! create
x[half]  #! index
""", "index-dtype", ("half",)),
    Case("float-embedding", """\
import torch
from torch import nn
ids = torch.tensor([1.0, 2.0])  #! create
nn.Embedding(4, 2)(ids)  #! index
""", "index-dtype", ("float32", "`ids`")),
    Case("float-gather", """\
import torch
x = torch.randn(2, 3)
i = torch.zeros(2, 1)  #! create
x.gather(1, i)  #! index
""", "index-dtype", ("float32", "`i`")),
    Case("byte-mask", """\
import torch
pixels = torch.tensor([3, 1], dtype=torch.uint8)  #! create
palette = torch.zeros(4, 3)  #! create
palette[pixels]  #! index
""", "mask-shape", ("uint8", "mask", ".long()")),
    Case("mask-other-length", """\
import torch
x = torch.randn(5, 3)  #! create
keep = torch.ones(6, dtype=torch.bool)  #! create
x[keep]  #! index
""", "mask-shape", ("`keep` [6]", "[5, 3]")),
    Case("mask-other-dimension", """\
import torch
x = torch.randn(5, 3)  #! create
keep = torch.tensor([True, False, True])  #! create
x[keep]  #! index
""", "mask-shape", ("x[:, keep]",)),
    Case("index-tensors-differ", """\
import torch
x = torch.randn(5, 5)
i = torch.arange(3)  #! create
j = torch.arange(2)  #! create
x[i, j]  #! index
""", "index-shape", ("`i` [3]", "`j` [2]")),
    Case("gather-rank", """\
import torch
scores = torch.randn(4, 3)
labels = torch.tensor([0, 2, 1, 1])  #! create
scores.gather(1, labels)  #! index
""", "index-shape", ("unsqueeze(1)", "`labels` has 1 dimension")),
    Case("value-shape", """\
import torch
x = torch.zeros(5, 2)
rows = torch.tensor([0, 1])  #! create
values = torch.ones(3, 2)  #! create
x[rows] = values  #! operand
""", "index-shape", ("[3, 2]", "[2, 2]")),
    Case("list-of-layers", """\
import torch
from torch import nn
layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
x = torch.randn(1, 2)
for i in range(3):
    x = layers[i](x)  #! index
""", "index-out-of-range", ("index 2",), late=False),
    Case("asked-like-a-dictionary", """\
import torch
from torch.utils.data import DataLoader
for batch in DataLoader(torch.zeros(4, 6), batch_size=2):  #! create
    ids = batch["input_ids"]  #! index
""", "dimension-out-of-range", ("is asked for 'input_ids' like a dictionary", "has no names")),
]
