"""Something else where a tensor is wanted, and more or fewer results than are unpacked."""

from forward_harness import Case

CASES = [
    Case("output-and-state", """\
import torch
from torch import nn
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8, batch_first=True)
        self.fc = nn.Linear(8, 2)
    def forward(self, x):
        h = self.rnn(x)  #! create
        h = torch.relu(h)  #! operand
        return self.fc(h)
M()(torch.randn(2, 3, 4))
""", "not-a-tensor", ('[2, 3, 8]', 'nn.LSTM')),  # fmt: skip
    Case("no-return", """\
import torch
from torch import nn
def loss_fn(a, b):  #! create
    l = ((a - b) ** 2).mean()
    print("loss", l.item())
net = nn.Linear(3, 1)
x, y = torch.randn(4, 3), torch.randn(4, 1)
loss = loss_fn(net(x), y)  #! create
loss.backward()  #! operand
""", "not-a-tensor", ('`loss` is None', '`loss_fn` has no `return`')),  # fmt: skip
    Case("no-return-in-a-block", """\
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
    def forward(self, x):  #! create
        x = torch.relu(self.fc(x)) + x  #! operand
class Net(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))
    def forward(self, x):
        for b in self.blocks:
            x = b(x)  #! create
        return x
Net()(torch.randn(2, 4)).sum().backward()
""", "not-a-tensor", ('`Block.forward` has no `return`',)),  # fmt: skip
    Case("two-results-of-an-encoder", """\
import torch
from torch import nn
class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)
    def forward(self, x):
        mu = self.a(x)
        lv = self.b(x)
        return mu, lv  #! create
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = Enc()
        self.dec = nn.Linear(3, 4)
    def forward(self, x):
        z = self.enc(x)  #! create
        return self.dec(z)  #! operand
VAE()(torch.randn(2, 4))
""", "not-a-tensor", ('a tuple of 2 tensors, each [2, 3]', '`Enc.forward` returns')),  # fmt: skip
    Case("array-for-a-convolution", """\
import numpy as np
import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
def load(n):
    return np.random.rand(n, 1, 8, 8)  #! create
batch = load(2)  #! create
out = model(batch)  #! operand
""", "not-a-tensor", ('a numpy array of shape [2, 1, 8, 8]', 'torch.from_numpy(batch)')),  # fmt: skip
    Case("list-never-stacked", """\
import torch
from torch import nn
outs = []  #! create
layer = nn.Linear(3, 3)
for i in range(3):
    outs.append(layer(torch.randn(2, 3)))
head = nn.Linear(3, 1)
print(head(outs))  #! operand
""", "not-a-tensor", ('torch.stack(outs)',)),  # fmt: skip
    Case("comma-at-the-end", """\
import torch
from torch import nn
x = torch.randn(2, 3)
w = torch.randn(2, 3),  #! create
y = x * 2
print(torch.cat([x, w]))  #! operand
""", "not-a-tensor", ('comma',)),  # fmt: skip
    Case("attention-and-its-weights", """\
import torch
from torch import nn
class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
    def forward(self, x):
        return self.norm(x + self.att(x, x, x))  #! operand
Attn()(torch.randn(2, 3, 8))
""", "not-a-tensor", ('attn_output',)),  # fmt: skip
    Case("values-and-indices", """\
import torch
from torch import nn
x = torch.randn(4, 5)
best = x.max(dim=1)  #! create
print(torch.relu(best))  #! operand
""", "not-a-tensor", ('`best.values`',)),  # fmt: skip
    Case("whole-batch", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(8, 3), torch.randint(0, 2, (8,))), batch_size=4)
net = nn.Linear(3, 2)
for batch in loader:  #! create
    out = net(batch)  #! operand
""", "not-a-tensor", ('`inputs, targets = batch`',)),  # fmt: skip
    Case("recurrent-layer-in-a-chain", """\
import torch
from torch import nn


class Regressor(nn.Module):
    def __init__(self, n_in=6, hidden=12):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_in, 10),
            nn.Tanh(),
            nn.LSTM(10, hidden, batch_first=True),  #! create
            nn.Linear(hidden, 1),  #! create
        )

    def forward(self, x):
        return self.net(x)  #! operand


model = Regressor()
x = torch.randn(3, 7, 6)
target = torch.randn(3, 7, 1)
opt = torch.optim.Adam(model.parameters())
for _ in range(2):
    loss = ((model(x) - target) ** 2).mean()
    loss.backward()
    opt.step()
""", "not-a-tensor", ('Sequential',)),  # fmt: skip
    Case("three-parts-for-two", """\
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader
class D(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        x = torch.randn(3)
        return x, i % 2, i  #! create
for x, y in DataLoader(D(), batch_size=4):  #! index
    print(x.shape)
""", "list-of-tensors", ('`D.__getitem__`',)),  # fmt: skip
    Case("three-results-for-two", """\
import torch
from torch import nn
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Linear(4, 4)
    def forward(self, x):
        mu, lv = self.e(x).chunk(2, -1)
        return mu + lv, mu, lv  #! create
vae = VAE()
for _ in range(2):
    rec, mu = vae(torch.randn(5, 4))  #! index
""", "list-of-tensors", ('3 values, returned by `VAE.forward`',)),  # fmt: skip
    Case("three-for-output-and-state", """\
import torch
from torch import nn


class Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.fc = nn.Linear(6, 2)

    def forward(self, x):
        out, h, c = self.lstm(x)  #! index
        return self.fc(out[:, -1])


m = Seq()
for _ in range(2):
    loss = m(torch.randn(3, 5, 4)).sum()
    loss.backward()
""", "list-of-tensors", ('output, (h_n, c_n)',)),  # fmt: skip
    Case("mask-on-some-ways", """\
import torch
def mask_of(x, causal):  #! create
    if causal:
        return torch.ones(x.size(1), x.size(1)).triu(1)
scores = torch.randn(2, 4, 4)
mask = mask_of(scores, causal=False)  #! create
print(scores + mask)  #! operand
""", "not-a-tensor", ("on the others it returns None",)),  # fmt: skip
    Case("text-for-a-number", """\
import torch
from torch import nn
options = dict(pair.split("=") for pair in "hidden=16,classes=3".split(","))
net = nn.Linear(8, options["hidden"])  #! operand
""", "torch-error", ("int(options[\"hidden\"])",)),  # fmt: skip
    Case("nothing-for-the-second", """\
import torch
from torch import nn
class Two(nn.Module):
    def losses(self, x, y=None):
        first = x.pow(2).mean()
        second = (x - y).pow(2).mean() if y is not None else None  #! create
        return first, second
two = Two()
first, second = two.losses(torch.randn(5, 3))  #! create
print(first + second)  #! operand
""", "not-a-tensor", ("`second` is None",)),  # fmt: skip
    Case("no-return-in-a-chain-of-blocks", """\
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)
    def forward(self, x):  #! create
        h = self.fc(x)  #! operand
        out = x + torch.relu(h)
net = nn.Sequential(*[Block(4) for _ in range(2)])
net(torch.randn(2, 4))
""", "not-a-tensor", ('`x` is None', '`Block.forward` has no `return`')),  # fmt: skip
    Case("attended-thrice", """\
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attend = nn.MultiheadAttention(d, 2, batch_first=True)
    def forward(self, x):
        out, weights = self.attend(x, x, x)  #! operand
        return x + out, weights  #! create
blocks = nn.ModuleList(Block(4) for _ in range(2))
x = torch.randn(2, 3, 4)
for block in blocks:
    x = block(x)  #! create
""", "not-a-tensor", ('`x` is a tuple of 2 tensors', '`Block.forward` returns')),  # fmt: skip
    Case("a-dataclass", """\
from dataclasses import dataclass
import torch
from torch import nn
@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
    def forward(self, x):
        h = self.body(x)
        return Output(self.head(h), h)  #! create
net = Net()
out = net(torch.randn(5, 6))  #! create
print(out.argmax(-1))  #! operand
""", "not-a-tensor", ('`out` is an Output with `logits`, `hidden`', '`.argmax` belongs to tensors')),  # fmt: skip
    Case("a-number-times-both-results", """\
import torch
q = torch.nn.Linear(4, 3)
best = q(torch.randn(8, 4)).max(1)  #! create
target = torch.randn(8) + 0.9 * best  #! operand
""", "not-a-tensor", ('a pair of values and indices',)),  # fmt: skip
]
