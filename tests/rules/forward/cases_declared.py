"""Programs in which a size was declared by one expression and made by another: partials, lists of widths, properties, sums, reshapes."""

from forward_harness import Case

CASES = [
    Case("made-by-a-partial", """\
import functools
import torch
from torch import nn
HIDDEN = 32  #! create
layer = functools.partial(nn.Linear, HIDDEN)  #! create
class Heads(nn.Module):
    def __init__(self, outs):
        super().__init__()
        self.heads = nn.ModuleList(layer(n) for n in outs)  #! create
    def forward(self, x):
        return [head(x) for head in self.heads]  #! operand
x = torch.randn(5, 24)  #! create
Heads((1, 2))(x)
""", "matmul-shape", ("HIDDEN is given here", "the 32 is set here"), late=False),
    Case("a-partial-of-a-number", """\
import torch
from functools import partial
from torch import nn
conv = partial(nn.Conv2d, 8, kernel_size=3)  #! create
net = nn.Sequential(conv(4))  #! create
x = torch.randn(1, 6, 5, 5)  #! create
net(x)  #! operand
""", "conv-shape", ("the 8 is set here",), late=False),
    Case("a-block-by-a-partial", """\
import torch
from functools import partial
from torch import nn
class Block(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.fc = nn.Linear(width, depth)  #! create
    def forward(self, x):
        return self.fc(x)  #! operand
wide = partial(Block, 12)  #! create
x = torch.randn(3, 7)  #! create
wide(5)(x)
""", "matmul-shape", ("the 12 is set here",), late=False),
    Case("one-of-a-list-of-widths", """\
import torch
from torch import nn
def mlp(sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU()]  #! create
    return nn.Sequential(*layers)
class Critic(nn.Module):
    def __init__(self, state, hidden=(16, 16)):
        super().__init__()
        self.q = mlp([state, *hidden, 1])  #! create
    def forward(self, s, a):
        return self.q(torch.cat([s, a], dim=-1))  #! operand
Critic(11)(torch.randn(4, 11), torch.randn(4, 3))  #! create
""", "matmul-shape", ("state is given here", "The 14 features are 11 + 3"), late=False),
    Case("a-property-by-another-name", """\
import torch
from torch import nn
class Encoder(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.rnn = nn.LSTM(inputs, hidden, batch_first=True, bidirectional=True)  #! create
    @property
    def out_features(self):
        return self.hidden  #! create
    def forward(self, x):
        return self.rnn(x)[0].mean(1)  #! create
class Tagger(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder, self.fc = encoder, nn.Linear(encoder.out_features, 4)  #! create
    def forward(self, x):
        return self.fc(self.encoder(x))  #! operand
Tagger(Encoder(3, 20))(torch.randn(2, 5, 3))  #! create
""", "matmul-shape", ("self.hidden is given here", "returns both directions"), late=False),
    Case("context-of-both-directions", """\
import torch
from torch import nn
class Decoder(nn.Module):
    def __init__(self, emb, enc, dec):
        super().__init__()
        self.rnn = nn.GRU(emb + enc, dec)  #! create
    def forward(self, e, context):
        return self.rnn(torch.cat([e, context], dim=2))  #! operand
EMB = 12
HID = 16  #! create
encoder = nn.GRU(EMB, HID, bidirectional=True)  #! create
context, _ = encoder(torch.randn(4, 2, EMB))  #! create
Decoder(EMB, HID, HID)(torch.randn(4, 2, EMB), context)
""", "recurrent-state", ("are 12 + 32, joined by", "has the 32 in its 44 from here"), late=False),
    Case("channels-joined", """\
import torch
from torch import nn
base, extra = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 5, 1)  #! create
mix = nn.Conv2d(6 + 4, 2, 1)  #! create
x = torch.randn(1, 3, 8, 8)
mix(torch.cat([base(x), extra(x)], dim=1))  #! operand
""", "conv-shape", ("are 6 + 5, joined by",), late=False),
    Case("pixels-without-channels", """\
import torch
from torch import nn
class Patches(nn.Module):
    def __init__(self, image, patch, channels=3):  #! create
        super().__init__()
        self.n, self.p, self.c = image // patch, patch, channels
        self.out = nn.Linear(24, patch * patch)  #! create
    def forward(self, t):
        t = self.out(t)
        return t.reshape(len(t), self.n, self.n, self.p, self.p, self.c)  #! operand
Patches(32, 8)(torch.randn(4, 16, 24))  #! create
""", "view-size", ("64; it is to be split into 8 × 8 × 3 = 192", "192 wide"), late=(4, 9, 10)),
    Case("a-squeeze-behind-a-sigmoid", """\
import torch
from torch import nn
net, scores = nn.Linear(4, 1), []
for x in torch.randn(9, 4).split(4):
    logits = net(x).squeeze()  #! create
    scores.append(torch.sigmoid(logits))
torch.cat(scores)  #! operand
""", "cat-shape", ("names no dimension",), late=(6, 7)),
    Case("channels-reckoned-in-a-loop", """\
import torch
from torch import nn
def build(c, growth):
    layers = []
    for n in (2, 3):
        layers += [nn.Conv2d(c + k * growth, growth, 1) for k in range(n)]
        c = c + (n - 1) * growth  #! create
        layers.append(nn.Conv2d(c, c, 1))  #! create
    return layers
layers = build(12, 6)
x = torch.randn(1, 12, 4, 4)
for layer in layers[:2]:
    x = torch.cat([x, layer(x)], 1)  #! create
layers[2](x)  #! operand
""", "conv-shape", ("the layer is made for 18 channels here", "are 18 + 6"), late=False),
    Case("dilated-without-padding", """\
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, dilation=dilation, padding=1)  #! create
        self.mix = nn.Conv1d(width, width, 1)
    def forward(self, x):
        h = torch.tanh(self.conv(x))  #! create
        return x + self.mix(h)  #! operand
net = nn.Sequential(Block(4, 1), Block(4, 2))
net(torch.randn(2, 4, 20))  #! create
""", "broadcast-mismatch", ("this layer's kernel, stride and padding make it so",), late=False),
    Case("mask-of-two-views", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
class Pairs(nn.Module):
    def __init__(self, batch):
        super().__init__()
        self.register_buffer("mask", torch.eye(2 * batch, dtype=torch.bool))  #! create
    def forward(self, a, b):
        z = torch.cat([a, b])  #! create
        return (z @ z.t()).masked_fill(self.mask, 0.0)  #! operand
SIZE = 8  #! create
loader, pairs = DataLoader(TensorDataset(torch.randn(20, 5)), batch_size=SIZE), Pairs(SIZE)  #! create
for x, in loader:
    pairs(x, x + 1)
""", "broadcast-mismatch", ("4 + 4 come from here", "this one has 4: it is the last of the loader"), late=False),
    Case("a-tuple-of-sizes", """\
import torch
class Config:
    width = 50
    heads = 8  #! create
    @property
    def each(self):
        return self.width // self.heads  #! create
config = Config()
x = torch.randn(2, 7, config.width)  #! create
shape = (2, 7, config.heads, config.each)
x.view(*shape)  #! operand
""".replace("    width = 50", "    width = 50  #! create"), "view-size", ("`size[2]` = 8 (your `config.heads`)", "50 is not divisible by 8"), late=False),
    Case("a-batch-on-its-way", """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
ROWS = 8  #! create
class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(20, 6), nn.Linear(30, 2)
    def forward(self, x):
        e = self.table(x)
        return self.out(e.view(ROWS, -1))  #! operand
net, loader = Flat(), DataLoader(TensorDataset(torch.randint(0, 20, (11, 5))), batch_size=ROWS)  #! create
for step, (x,) in enumerate(loader):
    x = x.to("cpu")
    net(x)
""", "view-size", ("This batch has 3 rows", "A batch has 8 samples here, this one has 3")),
    Case("joined-by-a-function", """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader
def collate(rows):
    return torch.from_numpy(np.stack(rows)), len(rows)  #! create
loader, net = DataLoader([np.ones(3), np.ones(3)], batch_size=2, collate_fn=collate), nn.Linear(3, 1)
for x, n in loader:
    net(x)  #! operand
""", "dtype-mismatch", ("float64", "from_numpy")),
]
