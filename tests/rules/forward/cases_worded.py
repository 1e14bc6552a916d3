"""Errors whose message names something else than what is wrong, or names nothing at all."""

from forward_harness import Case

CASES = [
    Case("einsum-of-temporaries", """\
import torch
def scores(a, b):
    return torch.einsum("ijk,jk->ik", a[0], torch.ones(3, 2) * b)  #! operand
scores(torch.ones(1, 2, 3), 2)
""", "matmul-shape", ("`a[0]` has 2 dimensions, the equation gives it 3 letters",), late=False),
    Case("a-column-into-a-row-of-places", """\
import torch
x = torch.ones(4, 4)
column = torch.ones(4, 1)  #! create
x[:, 0] = column  #! operand
""", "expand-size", ("`column` [4, 1] has more dimensions than `x[:, 0]`, which has shape [4]",)),
    Case("groups-of-other-channels", """\
import torch
norm = torch.nn.GroupNorm(2, 4)  #! create
x = torch.ones(2, 6, 3)  #! create
norm(x)  #! operand
""", "norm-shape", ("`x` has 6 channels (dimension 1); `norm` was built for 4",)),
    Case("one-state-for-an-lstm", """\
import torch
class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.LSTM(3, 4)
    def forward(self, x):
        h = torch.zeros(1, x.size(1), 4)  #! create
        return self.rnn(x, h)[0]  #! operand
Tagger()(torch.ones(5, 2, 3))
""", "recurrent-state", ("takes two states, `(h, c)`; `h` [1, 2, 4] is one tensor",)),
    Case("one-state-for-two-layers", """\
import torch
rnn = torch.nn.LSTM(3, 4, num_layers=2)
h = torch.zeros(2, 2, 4)  #! create
rnn(torch.ones(5, 2, 3), h)  #! operand
""", "recurrent-state", ("takes two states, `(h, c)`; `h` [2, 2, 4] is one tensor",)),
    Case("an-order-of-two-of-three", """\
import torch
x = torch.ones(2, 3, 4)  #! create
x.permute(0, 2)  #! operand
""", "view-size", ("does not name each of the 3 dimensions of `x` once",)),
    Case("one-place-for-each-channel", """\
import torch
norm, x = torch.nn.InstanceNorm2d(3), torch.ones(2, 3, 1, 1)  #! create
norm(x)  #! operand
""", "norm-shape", ("one place has none",)),
    Case("a-later-batch-of-another-width", """\
import torch
from torch import nn
def batches():
    for width in (6, 6, 5):  #! create
        yield torch.randn(4, width)  #! create
net = nn.Sequential(nn.Linear(6, 4), nn.ReLU())  #! create
for x in batches():
    net(x).sum().backward()  #! operand
""", "matmul-shape", ("The same layer has taken 2 inputs before, the last one of shape [4, 6].", "make this one alike where it is made"), late=(6, 7, 8)),
    Case("a-validation-of-other-channels", """\
import torch
from torch import nn
net = nn.Conv2d(3, 4, 3)  #! create
net(torch.randn(2, 3, 8, 8)).mean().backward()
with torch.no_grad():
    net(torch.randn(2, 1, 8, 8))  #! operand
""", "conv-shape", ("The same layer has taken an input of shape [2, 3, 8, 8] before.",), late=False),
    Case("windows-that-are-cut-off-at-the-end", """\
import torch
from torch.utils.data import DataLoader, Dataset
class Windows(Dataset):
    def __init__(self, series, past, future):
        self.series, self.past, self.future = series, past, future
    def __len__(self):
        return len(self.series) - self.past  #! create
    def __getitem__(self, i):
        seen = self.series[i : i + self.past]
        return seen, self.series[i + self.past : i + self.past + self.future]  #! create
for seen, target in DataLoader(Windows(torch.arange(12.0), 4, 2), batch_size=4):  #! operand
    pass
""", "cat-shape", ("Sample 7 ends at 13, and `self.series` has 12", "whose slice ends within the tensor")),
    Case("sizes-that-have-a-name", """\
import torch
from torch import nn
class Tagger(nn.Module):
    def __init__(self, layers, hidden):
        super().__init__()
        self.layers, self.hidden = layers, hidden
        self.rnn = nn.GRU(3, hidden, num_layers=layers, bidirectional=True)  #! create
    def begin(self, batch):
        shape = (self.layers, batch, self.hidden)  #! create
        return torch.zeros(shape)  #! create
    def forward(self, x):
        state = self.begin(x.size(1))
        return self.rnn(x, state)[0]  #! operand
tagger = Tagger(2, 8)  #! create
tagger(torch.randn(7, 5, 3))
""", "recurrent-state", ("`state` has shape [2, 5, 8]; `tagger.rnn` needs [4, 5, 8]",), late=(7, 12, 13)),
    Case("a-number-of-a-model-on-meta", """\
import torch
from torch import nn
with torch.device("meta"):  #! create
    table = nn.Embedding(10, 4)  #! create
table(torch.tensor([1, 2])).sum().item()  #! operand
""", "torch-error", ("has a shape and a dtype, and no values", "assign=True"), late=False),
]
